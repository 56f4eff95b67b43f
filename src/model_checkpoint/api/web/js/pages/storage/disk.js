// One disk: what is on it, what a prune would free, and when it will be full.
import { html, useMemo } from '../../../vendor/preact-htm.js';
import { Chart } from '../../chart/chart.js';
import { bytes, date } from '../../core/format.js';
import { now } from '../../core/clock.js';
import { Key, Panel } from '../../ui/panel.js';

const DAY = 86400;
const AHEAD = 30; // days, or a little beyond the day on which it is full
const day = (v) => (typeof v === 'number' ? date(v).slice(5, 10) : v);

function forecast(disk) {
  const days = disk.days || [];
  const base = disk.other || 0; // what else is on the disk fills it too; taken as steady
  const used = {
    id: 'used',
    label: 'used',
    x: days.map((one) => one.t),
    last: days.map((one) => one.used + base),
    color: '--c1',
    fill: true,
    plain: true,
  };
  if (!days.length || !(disk.rate > 0)) return [used];
  const last = days[days.length - 1];
  const span = Math.min(AHEAD * DAY, disk.full_at ? Math.max(1.2 * (disk.full_at - last.t), DAY / 24) : Infinity);
  const future = [...Array(AHEAD + 1)].map((_, i) => last.t + (i * span) / AHEAD);
  return [
    used,
    {
      id: 'forecast',
      label: 'forecast',
      x: future,
      last: future.map((t) => last.used + base + (disk.rate * (t - last.t)) / DAY),
      color: '--c5',
      dash: 1,
      plain: true,
    },
  ];
}

export function Disk({ disk, frees, alone }) {
  const series = useMemo(() => forecast(disk), [disk]);
  const full = useMemo(() => [{ y: disk.size, label: 'disk full', color: '--bad' }], [disk.size]);
  const prunable = Math.min(frees, disk.used);
  const kept = disk.used - prunable;
  const whole = disk.size || disk.used || 1;
  const share = (n) => ({ width: ((n || 0) / whole) * 100 + '%' });
  const rate = disk.rate > 0 ? bytes(disk.rate) + ' a day' : 'not growing';
  return html`<${Panel} title="Disk" sub=${alone ? rate : `${disk.name}, ${rate}`}>
    <div class="disk" role="img" aria-label=${`${bytes(disk.other ?? 0)} other files, ${bytes(kept)} kept, ${bytes(prunable)} prunable, ${bytes(disk.free ?? 0)} free`}>
      <i class="o" style=${share(disk.other)}></i><i class="u" style=${share(kept)}></i><i class="f" style=${share(prunable)}></i>
    </div>
    <div class="keys after">
      ${disk.other != null && html`<${Key} colour="--line-strong">other files ${bytes(disk.other)}<//>`}<${Key} colour="--c1">kept ${bytes(kept)}<//>
      ${prunable > 0 && html`<${Key} look="hatched">prunable ${bytes(prunable)}<//>`}${disk.free != null && html`<${Key} look="hollow">free ${bytes(disk.free)}<//>`}
    </div>
    ${
      series[0].x.length > 1
        ? html`<${Chart} label="Disk use and forecast" series=${series} xKind=${day} height=${210} lines=${series.length > 1 && disk.size ? full : undefined} format=${bytes} legend=${false} />
          <div class="keys"><${Key} colour="--c1">used<//>${series.length > 1 && html`<${Key} colour="--c5">forecast<//>`}</div>`
        : html`<p class="small muted after">The forecast needs checkpoints of at least two days; there are ${disk.days?.length || 0} so far (now ${date(now())} UTC).</p>`
    }
  <//>`;
}
