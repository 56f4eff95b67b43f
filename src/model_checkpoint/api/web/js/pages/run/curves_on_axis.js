// Curves and checkpoints on the chosen horizontal axis: steps, time since the run began, or the clock.
import { checkpointLink } from '../../core/address.js';
import { int } from '../../core/format.js';
import { better, metricOf } from '../../core/metrics.js';

export const onAxis = (x, started, kind) => (kind === 'time' ? x.map((at) => at - started) : x);

const kindOf = (row, best) => (row.health === 'damaged' ? 'bad' : row.pinned ? 'pin' : row.id === best ? 'best' : '');
const placeOf = (row, started, kind) => (kind === 'step' ? row.step : kind === 'time' ? row.at - started : row.at);

export function bestOf(rows) {
  const known = rows.filter((row) => Number.isFinite(metricOf(row).value));
  const wins = better(known.length ? metricOf(known[0]).name : '');
  return known.length ? known.reduce((best, row) => (wins(metricOf(row).value, metricOf(best).value) ? row : best)).id : null;
}

export function marksOf(rows, run, kind) {
  const best = bestOf(rows);
  return rows
    .filter((row) => row.health !== 'saving')
    .map((row) => ({
      x: placeOf(row, run.started, kind),
      id: row.id,
      href: checkpointLink(row.id),
      kind: kindOf(row, best),
      label: `Checkpoint at step ${int(row.step)}, ${row.health}${row.pinned ? ', pinned' : ''}${row.id === best ? ', best' : ''}`,
    }));
}
