// Where do the bytes go, when is the disk full, and what would a prune take?
import { html } from '../../../vendor/preact-htm.js';
import { useCell } from '../../core/cell.js';
import { bytes, dur, plural } from '../../core/format.js';
import { now } from '../../core/clock.js';
import { useResource } from '../../data/resource.js';
import { server } from '../../data/server.js';
import { Icon } from '../../ui/icons.js';
import { Head } from '../../ui/panel.js';
import { pending, Stale } from '../../ui/states.js';
import { Bytes } from './bytes_by_run.js';
import { Disk } from './disk.js';
import { PruneElsewhere, Retention } from './retention.js';
import { usePlan } from './plan.js';

const DAY = 86400;
const CHANGES = ['checkpoint', 'reconnected'];
const sum = (list, of) => list.reduce((total, one) => total + (of(one) || 0), 0);

const FAR = 3650; // days: nobody plans further

// The disk that is full first, in words.
function full(disks) {
  const soonest = disks.filter((disk) => disk.full_at).sort((a, b) => a.full_at - b.full_at)[0];
  const days = soonest ? (soonest.full_at - now()) / DAY : Infinity;
  if (days > FAR) return 'no disk is full within ten years';
  return `at the pace of the latest saves ${disks.length > 1 ? soonest.name : 'the disk'} is full in ${dur(days * DAY)}`;
}

function answer({ disks, trash }, plan) {
  if (!disks.length) return 'No checkpoint takes a byte yet.';
  const known = disks.filter((disk) => disk.size);
  const size = known.length === disks.length && known.length ? ' of ' + bytes(sum(known, (disk) => disk.size)) : '';
  const told = `Checkpoints take ${bytes(sum(disks, (disk) => disk.used))}${size}; ${full(disks)}.`;
  if (!plan) return told;
  if (!plan.frees)
    return `${told} Nothing is prunable${trash.length ? `, and ${bytes(sum(trash, (one) => one.bytes))} wait in the trash` : ''}.`;
  const rate = sum(disks, (disk) => Math.max(0, disk.rate));
  const won = rate > 0 && plan.frees / rate > 60 / DAY ? `, ${dur((plan.frees / rate) * DAY)} of growth` : '';
  return `${told} A prune by the rules below would free ${bytes(plan.frees)} in ${plural(plan.drops, 'checkpoint')}${won}.`;
}

export default function Storage() {
  const asked = useResource('/api/storage', { watch: (event) => CHANGES.includes(event.type), pause: 2000 });
  const { read_only: readOnly, why } = useCell(server);
  const plan = usePlan();
  const waiting = pending(asked, { title: 'Storage', rows: 12 });
  if (waiting) return waiting;
  const alone = asked.data.disks.length === 1; // of several, nobody says which of them a prune frees
  const after = () => {
    asked.reload();
    plan.again();
  };
  return html`<div class="page">
    <${Head} title="Storage">${answer(asked.data, plan.data)}<//>
    <${Stale} of=${asked} />
    ${readOnly && why && html`<div class="note-bar"><${Icon} name="shield" /><span class="grow">${why}</span></div>`}
    <div class="grid">
      <div class="c7 stack">${asked.data.disks.map((disk) => html`<${Disk} key=${disk.name} disk=${disk} frees=${alone ? plan.data?.frees || 0 : 0} alone=${alone} />`)}</div>
      <div class="c5"><${Bytes} runs=${asked.data.runs} /></div>
    </div>
    ${
      readOnly
        ? html`<${PruneElsewhere} words=${plan.words} />`
        : html`<${Retention} plan=${plan} trash=${asked.data.trash} after=${after} />`
    }
  </div>`;
}
