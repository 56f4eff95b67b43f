// Can I trust it? What was read back, what is broken, exactly where, and whether it can be mended.
import { html } from '../../vendor/preact-htm.js';
import { checkpointLink } from '../core/address.js';
import { agree, ago, bytes, dur, fullName, int, pct, plural } from '../core/format.js';
import { part } from '../data/http.js';
import { cancelJob, startJob } from '../data/jobs.js';
import { useResource } from '../data/resource.js';
import { writable } from '../data/server.js';
import { toast } from '../data/toasts.js';
import { Button } from '../ui/button.js';
import { FileMap } from '../ui/drawings.js';
import { Shape } from '../ui/icons.js';
import { Head, Key, Meter, Panel } from '../ui/panel.js';
import { Blank, pending, Stale } from '../ui/states.js';
import { Badge } from '../ui/status.js';

const CHANGES = ['damage', 'job', 'checkpoint', 'reconnected'];
const AGES = [
  ['day', '', 'within a day'],
  ['week', 'b', 'within a week'],
  ['older', 'o', 'longer ago'],
  ['never', 'n', 'never'],
  ['damaged', 'x', 'damaged'],
];

function repair(damage, after) {
  startJob(`/api/checkpoints/${part(damage.checkpoint)}/repair`, (job) => {
    after();
    if (job.state === 'done') toast(`Repaired from ${damage.source}: every byte matches its digest again.`, { secs: 8 });
  });
}

const Scrub = ({ scrub }) => {
  const busy = scrub?.job;
  const end = busy && writable() && html`<${Button} look="sm" onClick=${() => cancelJob(busy)}>Stop<//>`;
  const rate = scrub?.rate ? `, ${bytes(scrub.rate)}/s` : '';
  return html`<${Panel} title="Scrub" sub=${busy ? 'running, longest unread first' : 'idle'} end=${end}>
    ${
      busy
        ? html`<div class="row"><div class="grow"><${Meter} share=${scrub.done} label="Scrub" /></div><b>${pct(scrub.done)}</b></div>
          <p class="small muted after">${pct(scrub.done) + ' done'}${rate}.${scrub.now ? html` Now reading <span class="mono breakable">${scrub.now}</span>.` : ''} It goes on where it stopped after a restart.</p>`
        : html`<p class="muted">Nothing is being read now. A scrub reads every byte, those that were not read for longest first, and goes on where the last one stopped.</p>`
    }
  <//>`;
};

function LastRead({ ages, total }) {
  const shown = AGES.filter(([key]) => ages[key] > 0);
  return html`<${Panel} title="Last read back" sub=${plural(total, 'checkpoint')}>
    ${
      total > 0 &&
      html`<div class="ages" role="img" aria-label=${AGES.map(([key, , text]) => `${ages[key]} ${text}`).join(', ')}>
      ${shown.map(([key, look]) => html`<i class=${look} style=${{ width: (ages[key] / total) * 100 + '%' }}>${int(ages[key])}</i>`)}
    </div>`
    }
    <div class="keys after">
      <${Key} colour="--ok">within a day<//><${Key} look="soft-ok">within a week<//><${Key} look="faint-ok">longer ago<//><${Badge} of="unverified" bare text="never" /><${Badge} of="damaged" bare />
    </div>
  <//>`;
}

function Address({ damage }) {
  const bytesAt = damage.from == null ? null : `bytes ${int(damage.from)} to ${int(damage.to)}`;
  const tensor = damage.tensors.length > 1 ? `${damage.tensor} and ${damage.tensors.length - 1} more` : damage.tensor;
  const steps = [damage.file, tensor, damage.chunk == null ? null : 'chunk ' + damage.chunk, bytesAt].filter(Boolean);
  return html`<div class="addr">${steps.map((step, i) => html`${i > 0 && html`<span>›</span>`}<b>${step}</b>`)}</div>`;
}

function verify(damage, after) {
  startJob(`/api/checkpoints/${part(damage.checkpoint)}/verify`, after);
}

function Damage({ damage, after }) {
  if (!damage.file) return html`<${Unaddressed} damage=${damage} after=${after} />`;
  const mend = damage.source
    ? writable(damage) &&
      html`<${Button} look="sm" icon="wrench" onClick=${() => repair(damage, after)}>Repair from ${damage.source}<//>`
    : html`<span class="badge st-warn"><${Shape} kind="warn" />no source to repair from</span>`;
  const next = damage.source
    ? 'A new file is written, checked against the digest, then swapped in; the old one is kept for the grace time.'
    : html`No parity file, mirror or identical chunk covers these bytes. All other tensors load. Turn on <code>parity="pq"</code> for later saves.`;
  return html`<div class="dmg">
    <div class="row wrap">
      <${Badge} of="damaged" text=${damage.kind} /><a class="strong" href=${checkpointLink(damage.checkpoint)}>${fullName(damage)}, step ${int(damage.step)}</a>
      <span class="muted small">found ${ago(damage.at)}</span><span class="grow"></span>${mend}
    </div>
    <${Address} damage=${damage} /><${FileMap} from=${damage.from} to=${damage.to} size=${damage.file_bytes} />
    <p class="small muted">${damage.problem.replace(/\.?$/, '. ')}${damage.expected && html`Its SHA-256 should be <code class="breakable">${damage.expected}</code>. `}${next}</p>
  </div>`;
}

// Somebody recorded that it is damaged, but not where.
const Unaddressed = ({ damage, after }) =>
  html`<div class="dmg">
    <div class="row wrap">
      <${Badge} of="damaged" text=${damage.kind} /><a class="strong" href=${checkpointLink(damage.checkpoint)}>${fullName(damage)}, step ${int(damage.step)}</a>
      <span class="muted small">found ${ago(damage.at)}</span><span class="grow"></span>
      ${writable(damage) && html`<${Button} look="sm" icon="search" onClick=${() => verify(damage, after)}>Find out where<//>`}
    </div>
    <p class="small muted">Recorded: ${damage.problem.replace(/\.?$/, '.')} Which bytes is not recorded; a verification tells.</p>
  </div>`;

const STATES = { healthy: 'ok', ok: 'ok', repaired: 'ok', damaged: 'bad', missing: 'bad', failed: 'bad' };
const Event = ({ event }) => {
  const state = STATES[event.outcome] || 'warn';
  return html`<li>
    <span class=${'t-' + state}><${Shape} kind=${state} /></span><b>${event.what}</b>
    <span class="why"><a href=${checkpointLink(event.checkpoint)}>${event.checkpoint.slice(0, 12)}</a> ${event.outcome}${event.bytes ? `: ${bytes(event.bytes)} read in ${dur(event.seconds)}` : ''}</span>
    <span class="muted small nowrap">${ago(event.at)}</span>
  </li>`;
};

const Events = ({ events }) =>
  html`<${Panel} flush title="Recent events" sub="from the audit trail">
    ${
      events.length
        ? html`<ul class="report">${events.map((event) => html`<${Event} event=${event} />`)}</ul>`
        : html`<p class="muted pad">Nothing was verified, repaired or passed over yet.</p>`
    }
  <//>`;

const sum = (counts) => Object.values(counts).reduce((all, n) => all + n, 0);

function answer({ damage, ages }) {
  const total = sum(ages);
  const read = total - ages.never - ages.damaged;
  if (!total) return 'There is no checkpoint to trust yet.';
  const never = `${int(ages.never)} ${agree(ages.never, 'was', 'were')} never read back.`;
  if (ages.never === total && total === 1) return 'The 1 checkpoint was not read back yet, so nobody knows whether it is whole.';
  if (ages.never === total) return `None of ${plural(total, 'checkpoint')} was read back yet, so nobody knows whether they are whole.`;
  if (!ages.damaged && !damage.length)
    return `${int(read)} of ${plural(total, 'checkpoint')} ${agree(read, 'was', 'were')} read back and every byte matched; ${never}`;
  const fixable = new Set(damage.filter((one) => one.source).map((one) => one.checkpoint)).size;
  return `${int(ages.damaged)} of ${plural(total, 'checkpoint')} ${agree(ages.damaged, 'is', 'are')} damaged; ${int(fixable)} can be rebuilt bit for bit. ${never}`;
}

function wholeness(read) {
  if (!read) return 'A scrub reads every byte back and compares it with its digest.';
  return read === 1 ? 'One checkpoint was read back, and it is whole.' : `${int(read)} checkpoints were read back, and all of them are whole.`;
}

export default function Integrity() {
  const asked = useResource('/api/integrity', { watch: (event) => CHANGES.includes(event.type), pause: 1000 });
  const waiting = pending(asked, { title: 'Integrity' });
  if (waiting) return waiting;
  const { scrub, ages, damage, events } = asked.data;
  const total = sum(ages);
  const fixable = damage.filter((one) => one.source);
  const once = [...new Map(fixable.map((one) => [one.checkpoint, one])).values()];
  const buttons = html`
    ${writable() && html`<${Button} icon="play" disabled=${!!scrub?.job} onClick=${() => startJob('/api/integrity/scrub', asked.reload)}>Scrub now<//>`}
    ${writable() && once.length > 1 && html`<${Button} look="pri" icon="wrench" onClick=${() => once.forEach((one) => repair(one, asked.reload))}>Repair all ${once.length}<//>`}`;
  return html`<div class="page">
    <${Head} title="Integrity" end=${buttons}>${answer(asked.data)}<//>
    <${Stale} of=${asked} />
    <div class="grid"><div class="c6"><${Scrub} scrub=${scrub} /></div><div class="c6"><${LastRead} ages=${ages} total=${total} /></div></div>
    <${Panel} flush title="Damage" sub=${damage.length ? 'each with its address' : ''}>
      ${
        damage.length
          ? damage.map(
              (one) => html`<${Damage} key=${one.checkpoint + one.file + one.from} damage=${one} after=${asked.reload} />`,
            )
          : html`<${Blank} icon="shield" title=${ages.never === total ? 'Not looked for yet' : 'No damage found'}>${wholeness(total - ages.never)}<//>`
      }
    <//>
    <${Events} events=${events} />
  </div>`;
}
