// Which one? Health, what keeps it, and what it costs.
import { html } from '../../vendor/preact-htm.js';
import { useOption } from '../core/address.js';
import { agree, int, plural } from '../core/format.js';
import { useListing } from '../data/listing.js';
import { useWatch } from '../data/resource.js';
import { Chip } from '../ui/button.js';
import { Head } from '../ui/panel.js';
import { pending, Stale } from '../ui/states.js';
import { CheckpointTable } from './checkpoint_table.js';

// chip -> [word, what the server is asked for]
const FILTERS = {
  damaged: ['Damaged', { health: 'damaged' }],
  unverified: ['Unverified', { health: 'unverified' }],
  pinned: ['Pinned', { pinned: true }],
  none: ['Kept by no rule', { rule: 'none' }],
};

export default function Checkpoints() {
  const [filter, setFilter] = useOption('f');
  const [sort] = useOption('sort', '-at');
  const list = useListing('/api/checkpoints', { ...FILTERS[filter]?.[1], sort });
  const newestFirst = sort === '-at' && !filter;
  useWatch(
    (event) => ['checkpoint', 'damage', 'reconnected'].includes(event.type),
    newestFirst ? list.freshen : list.reload,
    1000,
  );
  const waiting = pending(list, { rows: 12, title: 'Checkpoints' });
  if (waiting) return waiting;
  const { counts } = list.data;
  const chips = Object.entries(FILTERS).map(
    ([key, [word]]) =>
      html`<${Chip} on=${filter === key} count=${int(counts[key])} onClick=${() => setFilter(filter === key ? '' : key)}>${word}<//>`,
  );
  return html`<div class="page">
    <${Head} title="Checkpoints">
      ${
        counts.all
          ? `${int(counts.damaged)} of ${plural(counts.all, 'checkpoint')} ${agree(counts.damaged, 'is', 'are')} damaged, ${int(counts.unverified)} ${agree(counts.unverified, 'was', 'were')} not read back yet; ${int(counts.none)} ${agree(counts.none, 'is', 'are')} kept by no rule.`
          : 'Nothing was saved yet.'
      }
    <//>
    <${Stale} of=${list} />
    <${CheckpointTable} list=${list} after=${list.reload} tools=${html`<div class="row wrap">${chips}</div>`} />
  </div>`;
}
