// What did saving cost me? The save timeline of one run, chosen here.
import { html } from '../../vendor/preact-htm.js';
import { useOption } from '../core/address.js';
import { fullName } from '../core/format.js';
import { useListing } from '../data/listing.js';
import { Select } from '../ui/choice.js';
import { Head } from '../ui/panel.js';
import { Blank, pending } from '../ui/states.js';
import { inOneSentence, SaveTimeline, useSaves } from './save_timeline.js';

export default function Saves() {
  const list = useListing('/api/runs', { sort: '-heartbeat' });
  const [id, setId] = useOption('run');
  const run = list.rows.find((one) => one.id === id) || list.rows[0];
  const asked = useSaves(run?.id);
  const waiting = pending(list, { title: 'Save timeline' });
  if (waiting) return waiting;
  if (!run)
    return html`<div class="page"><${Head} title="Save timeline">No run has been recorded yet.<//><div class="panel"><${Blank} icon="clock" title="No runs yet">Save once through the manager, and its times show up here.<//></div></div>`;
  const runs = list.rows.map((one) => [one.id, fullName(one)]);
  return html`<div class="page">
    <${Head} title="Save timeline" end=${html`<${Select} label="Run" value=${run.id} options=${runs} onChange=${setId} />`}>
      ${asked.data ? inOneSentence(asked.data.rows) : 'Asking for the saves of this run.'} Only the hatched part holds up training; staging, writing and hooks run beside it.
    <//>
    <${SaveTimeline} key=${run.id} run=${run} asked=${asked} />
  </div>`;
}
