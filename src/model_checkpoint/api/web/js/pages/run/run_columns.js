// What the list of runs says about each of them.
import { html } from '../../../vendor/preact-htm.js';
import { runLink, checkpointLink } from '../../core/address.js';
import { ago, bytes, dur, int, num, pct } from '../../core/format.js';
import { riskSeconds } from '../../core/risk.js';
import { useTick } from '../../core/tick.js';
import { Tags } from '../../ui/button.js';
import { Spark } from '../../ui/drawings.js';
import { Meter } from '../../ui/panel.js';
import { Badge } from '../../ui/status.js';

const dim = (run) => !['alive', 'stalled', 'dead'].includes(run.status);
const METER = { alive: '', stalled: 'warn' };
const LATE = 3600; // s at risk from which the figure stands out
export const headline = (run) => run.metrics?.[run.spark_key] || {};
export const progress = (run) => (run.total_steps ? Math.min(1, run.step / run.total_steps) : null);

const Name = ({ run }) =>
  html`<a class="name" href=${runLink(run.id)}>${run.name}</a> <span class="subtle small">${run.experiment}</span><${Tags} list=${run.tags} />`;

function Progress({ run }) {
  const share = progress(run);
  if (share == null) return html`<span class="muted">step ${int(run.step)}</span>`;
  return html`<div class="row">
    <div class="grow"><${Meter} share=${share} look=${METER[run.status] ?? 'idle'} label=${'Progress of ' + run.name} /></div>
    <span class="small muted share">${pct(share)}</span>
  </div>`;
}

function Newest({ run }) {
  useTick();
  return run.newest
    ? html`<a class="row" href=${checkpointLink(run.newest.id)}>
        <${Badge} of=${run.newest.health} bare text=${ago(run.newest.at)} /><span class="subtle small">step ${int(run.newest.step)}</span>
      </a>`
    : html`<span class="t-warn">none yet</span>`;
}

// Work at risk: what would be lost if the machine died now.
function Risk({ run }) {
  useTick();
  if (dim(run) || !run.at_risk) return html`<span class="subtle" title="Nothing is running">–</span>`;
  const seconds = riskSeconds(run);
  return html`<span class=${seconds > LATE ? 't-warn strong' : ''} title=${run.at_risk.steps == null ? '' : int(run.at_risk.steps) + ' steps'}>${dur(seconds)}</span>`;
}

const sparkLabel = (run) => `${run.spark_key || 'no metric'} of ${run.name}, now ${num(headline(run).last)}`;

// `metric` is the one that stands for most runs: best and last are sorted by it.
export const runColumns = (metric) => [
  {
    key: 'name',
    label: 'Run',
    width: 210,
    prio: 0,
    fixed: true,
    grow: true,
    sort: true,
    render: (run) => html`<${Name} run=${run} />`,
  },
  {
    key: 'status',
    label: 'State',
    width: 112,
    narrow: 118,
    prio: 0,
    sort: true,
    render: (run) => html`<${Badge} of=${run.status} title=${run.evidence} />`,
  },
  { key: 'step', label: 'Progress', width: 128, prio: 3, sort: true, render: (run) => html`<${Progress} run=${run} />` },
  {
    key: 'spark',
    label: 'Curve',
    width: 112,
    prio: 4,
    render: (run) => html`<${Spark} values=${run.spark} dim=${dim(run)} label=${sparkLabel(run)} />`,
  },
  {
    key: 'best',
    label: 'Best',
    width: 76,
    num: true,
    prio: 2,
    sort: metric && 'best.' + metric,
    title: 'Best of the metric so far',
    render: (run) => html`<span class="mono" title=${run.spark_key}>${num(headline(run).best)}</span>`,
  },
  {
    key: 'last',
    label: 'Last',
    width: 76,
    num: true,
    prio: 6,
    sort: metric,
    render: (run) => html`<span class="mono muted">${num(headline(run).last)}</span>`,
  },
  { key: 'newest', label: 'Newest checkpoint', width: 168, prio: 2, render: (run) => html`<${Newest} run=${run} />` },
  {
    key: 'at_risk',
    label: 'At risk',
    width: 84,
    num: true,
    prio: 1,
    sort: true,
    title: 'Work lost if the machine died now: time since the newest safe checkpoint',
    render: (run) => html`<${Risk} run=${run} />`,
  },
  {
    key: 'bytes',
    label: 'Bytes',
    width: 78,
    num: true,
    prio: 4,
    sort: true,
    title: 'Unique bytes: what deleting the run would free',
    render: (run) => bytes(run.bytes_unique),
  },
  { key: 'n', label: 'Kept', width: 60, num: true, prio: 6, sort: true, title: 'Checkpoints kept', render: (run) => int(run.n) },
  { key: 'host', label: 'Host', width: 92, prio: 7, render: (run) => html`<span class="muted">${run.host}</span>` },
  {
    key: 'started',
    label: 'Started',
    width: 96,
    num: true,
    prio: 7,
    sort: true,
    render: (run) => html`<span class="muted">${ago(run.started)}</span>`,
  },
];

export function runInOneLine(run) {
  const share = progress(run);
  const words = [`best ${num(headline(run).best)}`, share == null ? `step ${int(run.step)}` : pct(share)];
  return [...words, run.newest ? `ckpt ${ago(run.newest.at).replace(' ago', '')}` : 'no ckpt'].join(' · ');
}
