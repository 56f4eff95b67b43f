// A prune as a preview: what goes, what stays and why. Nothing is removed until it is said; then it waits in the trash.
import { html } from '../../../vendor/preact-htm.js';
import { useOption, checkpointLink } from '../../core/address.js';
import { ago, bytes, fullName, int, plural } from '../../core/format.js';
import { applyPlan } from '../../data/actions.js';
import { grace, writable } from '../../data/server.js';
import { Table } from '../../table/table.js';
import { Button } from '../../ui/button.js';
import { Segments, Select } from '../../ui/choice.js';
import { Confirm, useDialog } from '../../ui/dialog.js';
import { Code } from '../../ui/code.js';
import { Panel } from '../../ui/panel.js';
import { Blank, Failure, Skeleton } from '../../ui/states.js';
import { Badge } from '../../ui/status.js';
import { Rule } from '../reasons.js';
import { Trash } from './trash.js';

const Why = ({ row }) =>
  row.keep
    ? html`<span class="row rules">${row.why.map((word) => html`<${Rule} text=${word} />`)}</span>`
    : html`<span class="rule none" title=${row.why.join('\n')}>${row.why[0] || 'no rule claims it'}</span>`;

const columns = (kept) => [
  {
    key: 'n',
    label: 'Checkpoint',
    width: 230,
    prio: 0,
    fixed: true,
    grow: true,
    render: (row) =>
      html`<a class="name" href=${checkpointLink(row.id)}>step ${int(row.step)}</a> <span class="subtle small">${fullName(row)}</span>`,
  },
  {
    key: 'why',
    label: kept ? 'Stays because' : 'Goes because',
    width: 300,
    prio: 2,
    render: (row) => html`<${Why} row=${row} />`,
  },
  { key: 'health', label: 'Health', width: 110, prio: 5, render: (row) => !row.healthy && html`<${Badge} of="damaged" bare />` },
  {
    key: 'bytes',
    label: kept ? 'Would free' : 'Frees',
    width: 96,
    narrow: 80,
    num: true,
    prio: 1,
    render: (row) => bytes(row.frees),
  },
  { key: 'at', label: 'Saved', width: 104, num: true, prio: 4, render: (row) => ago(row.at) },
];
const GOES = columns(false);
const STAYS = columns(true);

function Rules({ rules }) {
  const { metrics } = rules;
  const number = (key, min, label, title) =>
    html`<label class="ctl" title=${title}>${label} <input class="input num" type="number" min=${min} max="100000000" value=${rules[key]} onInput=${(event) => rules.set({ [key]: event.target.value })} /></label>`;
  const names = metrics.includes(rules.metric) || !rules.metric ? metrics : [rules.metric, ...metrics];
  return html`<div class="rules-form">
    ${number('last', 1, 'last')}${number('best', 0, 'best', 'How many of the best stay')}
    ${names.length > 0 && html`<${Select} label="by" value=${rules.metric} options=${names.map((name) => [name, name])} onChange=${(metric) => rules.set({ metric })} />`}
    ${number('every', 0, 'every', 'Steps between those that stay; empty or 0 for none')} <span class="small muted">steps</span>
    ${rules.rest.map((word) => html`<${Rule} text=${word} />`)}
    <span class="small muted">pinned, parents and the last healthy one always stay</span>
  </div>`;
}

const ConfirmPrune = ({ plan, onClose, after }) =>
  html`<${Confirm} title=${`Move ${plural(plan.drops, 'checkpoint')} to trash?`} verb="Move to trash" cli=${plan.cli} onYes=${() => applyPlan(plan.plan_id, after)} onClose=${onClose}>
    <p>${bytes(plan.frees)} becomes free in ${grace()}. Until then each of them can be restored from the trash.</p>
    <p class="muted">Each run keeps its newest healthy checkpoint. Nothing pinned, nothing a run started from, and nothing damaged that could be repaired is touched. Exactly what the list shows goes: should the store have changed meanwhile, nothing is done and the preview is made anew.</p>
  <//>`;

// Where nothing may be changed, the same preview is one command away.
export const PruneElsewhere = ({ words }) =>
  html`<${Panel} title="Retention" sub="not from here">
    <p class="muted">This server changes nothing, so it makes no plans either. The same preview on the command line:</p>
    <${Code} text=${`mckpt prune ROOT ${words.map((word) => '--keep ' + word).join(' ')} --dry-run`} />
  <//>`;

function Preview({ plan, show }) {
  if (plan.error && !plan.data) return html`<${Failure} error=${plan.error} retry=${plan.again} />`;
  if (!plan.data) return html`<${Skeleton} />`;
  const kept = show === 'keep';
  const rows = plan.data.rows.filter((row) => row.keep === kept);
  const sub = (row) => `${row.keep ? row.why.join(', ') : row.why[0] || 'no rule claims it'} · ${bytes(row.frees)}`;
  const nothing = kept
    ? html`<${Blank} icon="box" title="Nothing would stay">There is no checkpoint to keep.<//>`
    : html`<${Blank} icon="check" title="Nothing would go">Every checkpoint is claimed by a rule.<//>`;
  return html`<${Table} label="Prune preview" rows=${rows} rowKey=${(row) => row.id} rowClass=${(row) => (row.keep ? '' : 'drop')} sub=${sub} columns=${kept ? STAYS : GOES} empty=${nothing} />`;
}

export function Retention({ plan, trash, after }) {
  const [show, setShow] = useOption('show', 'drop');
  const dialog = useDialog();
  const { data } = plan;
  const drop = data?.drops ?? 0;
  const ask = () => dialog.open((close) => html`<${ConfirmPrune} plan=${data} onClose=${close} after=${after} />`);
  const kinds = [
    ['drop', `Goes ${data ? int(drop) : '…'}`],
    ['keep', `Stays ${data ? int(data.keeps) : '…'}`],
    ['trash', `Trash ${int(trash.length)}`],
  ];
  return html`<section class="panel">
    <header>
      <h2>Retention</h2><span class="sub">a preview: nothing is removed until you say so</span>
      ${writable() && html`<div class="end"><${Button} look="danger" icon="trash" disabled=${!drop || plan.loading} onClick=${ask}>Move ${int(drop)} to trash, ${bytes(data?.frees ?? 0)}<//></div>`}
    </header>
    <div class="tbl-tools">
      <${Rules} rules=${plan.rules} />
      <div class="end"><${Segments} label="Show" value=${show} onChange=${setShow} options=${kinds} /></div>
    </div>
    ${(data?.notes || []).map((note) => html`<p class="small muted pad">${note}</p>`)}
    ${plan.error && plan.data && html`<div class="note-bar bad inset" role="alert"><span class="grow">${plan.error.message}</span></div>`}
    ${show === 'trash' ? html`<${Trash} rows=${trash} after=${after} />` : html`<${Preview} plan=${plan} show=${show} />`}
    ${dialog.element}
  </section>`;
}
