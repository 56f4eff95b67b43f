// What is in it, can I resume from it, and why is it still here?
import { html, useEffect, useRef } from '../../../vendor/preact-htm.js';
import { checkpointLink, go, href, runLink } from '../../core/address.js';
import { ago, bytes, date, dur, fullName, int, num } from '../../core/format.js';
import { keys } from '../../core/keys.js';
import { metricOf } from '../../core/metrics.js';
import { pin } from '../../data/actions.js';
import { part } from '../../data/http.js';
import { startJob } from '../../data/jobs.js';
import { useResource } from '../../data/resource.js';
import { writable } from '../../data/server.js';
import { toast } from '../../data/toasts.js';
import { useCrumbs } from '../../frame/crumbs.js';
import { Button, Tags } from '../../ui/button.js';
import { Tabs } from '../../ui/choice.js';
import { Code } from '../../ui/code.js';
import { useDialog } from '../../ui/dialog.js';
import { Shape } from '../../ui/icons.js';
import { Menu } from '../../ui/menu.js';
import { Head, Panel, Stat } from '../../ui/panel.js';
import { pending, Stale } from '../../ui/states.js';
import { Badge } from '../../ui/status.js';
import { AskNote, AskTags, ConfirmTrash } from '../marking.js';
import { Rule } from '../reasons.js';
import { Files } from './files.js';
import { lacking, ResumeReport } from './resume_report.js';
import { Tensors } from './tensors.js';

const place = (row) => '/api/checkpoints/' + part(row.id);

function verify(row, reload) {
  startJob(place(row) + '/verify', (job) => {
    reload();
    if (job.state === 'done') toast('Every byte was read back; the page shows what was found.');
  });
}

function Buttons({ row, reload, dialog }) {
  const open =
    (Dialog, props, after = reload) =>
    () =>
      dialog.open((close) => html`<${Dialog} ...${props} onClose=${close} after=${after} />`);
  const away = () => go(runLink(row.run, 'checkpoints'));
  return html`
    <${Button} icon="chev" look="icon turn-left" label="Previous checkpoint ([)" disabled=${!row.prev} onClick=${() => go(checkpointLink(row.prev))} />
    <${Button} icon="chev" look="icon turn-right" label="Next checkpoint (])" disabled=${!row.next} onClick=${() => go(checkpointLink(row.next))} />
    ${writable(row) && html`<${Button} aria-pressed=${String(row.pinned)} onClick=${() => pin(row, reload)}><${Shape} kind="pin" />${row.pinned ? 'Pinned' : 'Pin'}<//>`}
    ${row.prev && html`<a class="btn" href=${href('/diff', { a: row.prev, b: row.id })}>Diff</a>`}
    ${writable(row) && html`<${Button} onClick=${() => verify(row, reload)}>Verify<//>`}
    ${
      writable(row) &&
      html`<${Menu} label="More" icon="dots" look="icon">
      <button type="button" onClick=${open(AskTags, { row })}>Tags</button>
      <button type="button" onClick=${open(AskNote, { row })}>Note</button>
      <hr /><button type="button" class="danger" disabled=${row.pinned} onClick=${open(ConfirmTrash, { rows: [row] }, away)}>${row.pinned ? 'Pinned: cannot be removed' : 'Move to trash'}</button>
    <//>`
    }`;
}

function Answer({ row }) {
  const missing = lacking(row);
  const verdict = row.damage.length
    ? 'A resume passes it over while it is damaged'
    : missing.length
      ? `A resume lacks ${missing.length} of ${row.parts.length} parts: ${missing.map((one) => one.name).join(', ')}`
      : `A resume gets all ${row.parts.length} parts`;
  return html`${verdict}. Saved ${ago(row.at)} (${date(row.at)} UTC) by <a href=${runLink(row.run)}>${fullName(row)}</a>; <code class="breakable">${row.id}</code>.${row.note ? ' Note: ' + row.note : ''}`;
}

const Damage = ({ row }) => {
  const [one] = row.damage;
  const mend = one.source
    ? `It can be rebuilt bit for bit from ${one.source}.`
    : 'No parity or mirror covers it; all other tensors are whole.';
  return html`<div class="note-bar bad">
    <${Shape} kind="bad" />
    <span class="grow"><b>${one.tensor || one.file || 'Some of it'}</b> cannot be read: ${one.problem.replace(/\.$/, '')}. ${mend} A resume takes an older one instead.</span>
    <a class="btn" href="#/integrity">${one.source ? 'Repair' : 'Details'}</a>
  </div>`;
};

// Of these two the catalog knows which checkpoint is the best; of others nobody says that one is not.
const FLAGGED = ['loss', 'val_loss'];

function rankOf({ name, value }, { reasons }) {
  if (value == null) return 'none was saved with it';
  if (reasons.some(({ rule }) => rule === `best(${name})`)) return 'the best of the run';
  return FLAGGED.includes(name) && 'not the best of the run';
}

function Figures({ row }) {
  const { name, value } = metricOf(row);
  const verified = row.damage.length
    ? 'found the damage'
    : row.verified_at
      ? 'every byte read back'
      : 'the next scrub reaches it';
  return html`<dl class="stats">
    <${Stat} label=${name || 'Metric'} value=${value == null ? '–' : num(value)} note=${rankOf({ name, value }, row)} />
    <${Stat} label="Size" value=${bytes(row.bytes)} note=${row.unique == null ? 'sharing unknown' : bytes(row.unique) + ' unique' + (row.unique < row.bytes ? ', the rest is shared' : '')} />
    <${Stat} label="Last verified" value=${row.verified_at ? ago(row.verified_at) : 'never'} note=${verified} />
    <${Stat} label="Training stalled" value=${row.stall == null ? '–' : dur(row.stall)} note=${html`<a href=${runLink(row.run, 'saves')}>how this save went</a>`} />
  </dl>`;
}

const Kept = ({ row, reload }) =>
  html`<${Panel} title="Why it is kept">
    ${
      row.reasons.length
        ? html`<ul class="reasons">${row.reasons.map(({ rule, why }) => html`<li><${Rule} text=${rule} /><span class="muted">${why}</span></li>`)}</ul>`
        : html`<p><span class="rule none">no rule</span> No keeper claims it. The next prune by the rules of its run moves it to trash and frees ${bytes(row.unique)}. ${writable(row) && html`<${Button} look="sm" onClick=${() => pin(row, reload)}>Pin it<//>`}</p>`
    }
    ${
      row.children?.length > 0 &&
      html`<p class="muted after">Runs that started here: ${row.children.map((run, i) => html`${i ? ', ' : ''}<a href=${runLink(run.id ?? run)}>${run.name ?? run}</a>`)}.</p>`
    }
  <//>`;

export default function Checkpoint({ route }) {
  const id = route.parts[1];
  const tab = route.q.tab === 'files' ? 'files' : 'tensors';
  const known = useRef();
  const mine = (event) =>
    event.type === 'reconnected' || (['checkpoint', 'damage'].includes(event.type) && event.id === known.current);
  const asked = useResource('/api/checkpoints/' + part(id), { watch: mine, pause: 600 });
  const dialog = useDialog();
  const row = asked.data;
  known.current = row?.run; // events of checkpoints name their run
  useCrumbs(row && [['Runs', '#/runs'], [fullName(row), runLink(row.run)], ['step ' + int(row.step)]]);
  useEffect(() => {
    if (!row) return undefined;
    return keys({
      '[': () => row.prev && go(checkpointLink(row.prev)),
      ']': () => row.next && go(checkpointLink(row.next)),
      p: () => writable(row) && pin(row, asked.reload),
    });
  }, [row]);
  const waiting = pending(asked, { title: 'Checkpoint', back: ['#/checkpoints', 'All checkpoints'] });
  if (waiting) return waiting;
  const { files } = row;
  const tabs = [
    ['tensors', 'Tensors', checkpointLink(id)],
    ['files', 'Files', checkpointLink(id, { tab: 'files' }), files.length],
  ];
  return html`<div class="page">
    <${Head}
      title=${html`Step ${int(row.step)}<${Badge} of=${row.health} />${row.pinned && html`<${Badge} of="pinned" />`}<${Tags} list=${row.tags} />`}
      end=${html`<${Buttons} row=${row} reload=${asked.reload} dialog=${dialog} />`}
    ><${Answer} row=${row} /><//>
    <${Stale} of=${asked} />
    ${row.deleted_at && html`<div class="note-bar warn"><${Shape} kind="warn" /><span class="grow">It went to the trash ${ago(row.deleted_at)} and can still be brought back.</span><a class="btn sm" href="#/storage?show=trash">Trash</a></div>`}
    ${row.damage.length > 0 && html`<${Damage} row=${row} />`}
    ${row.problem && html`<div class="note-bar"><${Shape} kind="unv" /><span class="grow">Its files cannot be looked at: ${row.problem}</span></div>`}
    <${Figures} row=${row} />
    <div class="grid">
      <div class="c7"><${ResumeReport} row=${row} /></div>
      <div class="c5 stack"><${Kept} row=${row} reload=${asked.reload} /><${Panel} title="Use it"><${Code} text=${[row.cli.load, row.cli.show, row.cli.verify].join('\n')} /><//></div>
    </div>
    <${Tabs} label="Contents" current=${tab} items=${tabs} />
    ${tab === 'tensors' ? html`<${Tensors} row=${row} />` : html`<${Files} files=${files} />`}
    ${dialog.element}
  </div>`;
}
