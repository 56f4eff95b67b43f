import { html } from '../../vendor/preact-htm.js';
import { useCell } from '../core/cell.js';
import { pct } from '../core/format.js';
import { cancelJob, jobs, noteOf, running, shareOf } from '../data/jobs.js';
import { Button } from '../ui/button.js';
import { Menu } from '../ui/menu.js';
import { Meter } from '../ui/panel.js';
import { Shape } from '../ui/icons.js';

const LOOKS = { done: 'ok', cancelled: 'idle', failed: 'bad' };
const SHOWN = 8;

export const Job = ({ job }) =>
  html`<div class="job stay">
    <div class="row">
      <span class="grow strong ell">${job.title}</span>
      ${running([job]).length ? html`<${Button} look="sm" onClick=${() => cancelJob(job.id)}>Cancel<//>` : html`<span class="tiny muted">${job.state}</span>`}
    </div>
    <${Meter} share=${shareOf(job)} look=${LOOKS[job.state] || ''} label=${job.title} />
    <div class="tiny muted">${noteOf(job) || pct(shareOf(job))}</div>
  </div>`;

export function JobMenu() {
  const list = useCell(jobs);
  const busy = running(list).length;
  const text = busy
    ? html`<span class="row"><${Shape} kind="busy" />${busy}<span class="vh"> jobs running</span></span>`
    : html`<span class="vh">Jobs</span>`;
  return html`<${Menu} label="Jobs" icon=${busy ? null : 'check'} look="ghost" text=${text}>
    <div class="head">Jobs</div>
    ${list.length === 0 && html`<p class="muted small empty">Nothing is running.</p>`}
    ${list.slice(0, SHOWN).map((job) => html`<${Job} key=${job.id} job=${job} />`)}
  <//>`;
}
