// Every component in every state on one page: what the tests photograph, and what a newcomer copies from.
import { html, useState } from '../../vendor/preact-htm.js';
import { Chart } from '../chart/chart.js';
import { toast } from '../data/toasts.js';
import { useCrumbs } from '../frame/crumbs.js';
import { Job } from '../frame/job_menu.js';
import { ColumnMenu, useColumns } from '../table/columns.js';
import { sortFrom, Table } from '../table/table.js';
import { Button, Chip, Tags } from '../ui/button.js';
import { Segments, Select, Tabs } from '../ui/choice.js';
import { Code } from '../ui/code.js';
import { Ask, Confirm, useDialog } from '../ui/dialog.js';
import { FileMap, Histogram, Spark } from '../ui/drawings.js';
import { Icon, Shape } from '../ui/icons.js';
import { Menu } from '../ui/menu.js';
import { Head, Key, Meter, Panel, Stat } from '../ui/panel.js';
import { QueryBar } from '../ui/query_bar.js';
import { Blank, Computing, Failure, Skeleton, Stale } from '../ui/states.js';
import { Badge, STATUS } from '../ui/status.js';
import { Reasons } from './reasons.js';
import { SaveTimeline } from './save_timeline.js';

const COLOURS =
  'bg panel sunken hover picked line line-strong subtle muted fg accent accent-soft ok unv bad busy warn pin c1 c2 c3 c4 c5 c6 c7 c8'.split(
    ' ',
  );
const CURVE = [9, 7, 5, 4.4, 4, 3.6, 3.7, 3.4, 3.3, 3.2];
const BELL = [...Array(32)].map((_, i) => Math.exp(-(((i - 15) / 6) ** 2)));
const LONG = [...Array(10000)].map((_, i) => ({ id: 'c' + i, step: (i + 1) * 500, value: 2 + 900 / (i + 200) }));
const LONG_COLUMNS = [
  {
    key: 'id',
    label: 'Id',
    width: 120,
    prio: 0,
    fixed: true,
    grow: true,
    sort: (row) => row.step,
    render: (row) => html`<code>${row.id}</code>`,
  },
  { key: 'step', label: 'Step', width: 120, num: true, prio: 1, sort: (row) => row.step, render: (row) => row.step },
  {
    key: 'value',
    label: 'val_loss',
    width: 120,
    num: true,
    prio: 1,
    sort: (row) => row.value,
    render: (row) => row.value.toFixed(4),
  },
];
const X = [...Array(200)].map((_, i) => i * 10);
const CHART = ['train_loss', 'val_loss', 'ema_loss', 'other', 'fifth'].map((label, k) => ({
  id: label,
  label,
  x: X,
  last: X.map((x) => 2 + 6 / (1 + x / 150) + 0.1 * k),
  color: `--c${k + 1}`,
  dash: k > 3 ? 1 : 0,
}));
const MARKS = X.filter((_, i) => i % 20 === 10).map((x, i) => ({
  x,
  id: 'm' + i,
  href: '#/kit',
  kind: ['', 'pin', 'bad', 'best'][i % 4],
  label: 'Checkpoint at step ' + x,
}));
const WRONG = { error: 'No metric or setting is called vall_loss.', at: 0, length: 9, suggestion: 'val_loss' };
const REASONS = {
  reasons: [
    { rule: 'last(3)', why: 'newest' },
    { rule: 'pinned', why: 'by you' },
    { rule: 'best(val_loss)', why: 'best' },
  ],
};

const SHORT = [
  { id: 's3', step: 1500, health: 'damaged', value: 2.68 },
  { id: 's2', step: 1000, health: 'unverified', value: 2.74 },
  { id: 's1', step: 500, health: 'healthy', value: 2.91 },
];
const SHORT_COLUMNS = [
  { key: 'step', label: 'Checkpoint', width: 120, prio: 0, fixed: true, grow: true, sort: (row) => row.step, render: (row) => 'step ' + row.step },
  { key: 'health', label: 'Health', width: 126, prio: 0, render: (row) => html`<${Badge} of=${row.health} />` },
  { key: 'value', label: 'val_loss', width: 90, num: true, prio: 1, sort: (row) => row.value, render: (row) => row.value },
];
const JOBS = [
  { id: 'j1', title: 'Verify step 1500', state: 'running', total: 100, done: 43, now: 'model.embed.weight', rate: 4.1e8 },
  { id: 'j2', title: 'Scrub', state: 'queued', total: 0, done: 0 },
  { id: 'j3', title: 'Verify step 1000', state: 'done', total: 1, done: 1 },
  { id: 'j4', title: 'Repair step 500', state: 'failed', total: 4, done: 1, error: 'no parity file covers it' },
  { id: 'j5', title: 'Scrub of before', state: 'cancelled', total: 4, done: 2 },
];
const stretches = (stall, writing) => [
  { kind: 'stall', from: 0, dur: stall },
  { kind: 'staging', from: 0, dur: 0.2 },
  { kind: 'hooks', from: 0.2, dur: 0.05 },
  { kind: 'writing', from: 0.25, dur: writing },
  { kind: 'checking', from: 0.25 + writing, dur: 0.4 },
];
const HOOKS = [
  { name: 'note the learning rate', priority: 'HIGH', ok: true, ms: 2 },
  { name: 'tell the others', priority: 'LOW', ok: false, error: 'no answer in time', ms: 48 },
];
const SAVES = [2.1, 0.9, 1].map((writing, i) => {
  const save = { checkpoint: 'kit-' + i, step: 1500 - 500 * i, at: 1.7e9 - 600 * i, bytes: 5e8, written: 2e8 };
  return { ...save, segments: stretches(i ? 0.2 : 1.1, writing), hooks: i ? [] : HOOKS };
});
const RUN = { id: 'kit', started: 1.7e9 - 3600, ended: 1.7e9 };

const Statuses = () =>
  html`<${Panel} title="Status" sub="shape, word and colour">
    <div class="row wrap">${Object.keys(STATUS).map((word) => html`<${Badge} of=${word} />`)}</div>
    <p class="small muted after">In grey, the shapes alone still tell them apart:</p>
    <div class="row wrap grey">${Object.keys(STATUS).map((word) => html`<${Badge} of=${word} bare />`)}</div>
  <//>`;

function Controls() {
  const [picked, setPicked] = useState('a');
  return html`<${Panel} title="Buttons and inputs">
    <div class="row wrap">
      <${Button} look="pri">Primary<//><${Button}>Default<//><${Button} look="danger">Remove<//><${Button} look="danger solid">Really<//><${Button} disabled>Disabled<//><${Button} look="ghost">Ghost<//>
      <${Button} look="icon" icon="cols" label="Icon" /><${Button} aria-pressed="true">Pressed<//>
    </div>
    <div class="row wrap after">
      <${Segments} label="Example" value=${picked} onChange=${setPicked} options=${[
        ['a', 'Step'],
        ['b', 'Run time'],
        ['c', 'Clock'],
      ]} />
      <input class="input" placeholder="Filter by name" aria-label="Example of a field" /><${Select} label="Metric" value="b" options=${[
        ['a', 'loss'],
        ['b', 'val_loss'],
      ]} onChange=${() => {}} />
      <${Chip} on=${true} count="4" onClick=${() => {}}>Alive<//><${Chip} on=${false} count="2" onClick=${() => {}}>Failed<//><${Tags} list=${['tag', 'paper']} /><kbd>g</kbd><kbd>r</kbd>
    </div>
    <div class="row wrap after">
      <${Menu} label="Example of a menu" icon="dots" look="icon" left><a href="#/kit">A link</a><button type="button">An action</button><hr /><button type="button" class="danger">One to think about</button><//>
      <${Key} colour="--c1">a line<//><${Key} look="hatched">a part<//>
    </div>
    <div class="after"><${Tabs} label="Example" current="one" items=${[
      ['one', 'Charts', '#/kit'],
      ['two', 'Checkpoints', '#/kit', 12],
    ]} /></div>
    <div class="after"><${Code} text="mckpt ls runs/a" /></div>
    <div class="after"><${Reasons} of=${REASONS} /> <${Reasons} of=${{ reasons: [] }} /></div>
  <//>`;
}

function Asking() {
  const dialog = useDialog();
  const confirm = (close) =>
    html`<${Confirm} title="Move 12 checkpoints to trash?" verb="Move to trash" cli="mckpt prune runs/ --keep last:3" onYes=${() => toast('12 checkpoints moved to trash.', { undo: () => {}, secs: 10 })} onClose=${close}><p>14.2 GB becomes free in 7 days. Until then you can restore them.</p><//>`;
  const ask = (close) =>
    html`<${Ask} title="Tags of step 500" label="Tags" value="paper" hint="Separated by spaces." onSave=${() => toast('Tags saved.')} onClose=${close} />`;
  return html`<${Panel} title="Confirm, ask, undo, toast">
    <div class="row wrap">
      <${Button} look="danger" icon="trash" onClick=${() => dialog.open(confirm)}>Remove 12<//><${Button} icon="tag" onClick=${() => dialog.open(ask)}>Tags<//>
      <${Button} onClick=${() => toast('Pinned: retention will never take it.', { undo: () => {}, secs: 8 })}>Toast with undo<//><${Button} onClick=${() => toast('Damage confirmed: 1 file.', { kind: 'bad' })}>Toast, bad<//>
    </div>
    <div class="after"><${Meter} share=${0.43} label="Example" /></div>
    <p class="small muted after">43 %, 9 min left, can be cancelled at any time</p>
    ${dialog.element}
  <//>`;
}

const Notes = () =>
  html`<${Panel} title="Notes">
    <div class="stack tight">
      <div class="note-bar"><${Icon} name="shield" /><span class="grow">Opened on a plain folder: you can look, but nothing can be changed.</span></div>
      <div class="note-bar warn"><${Shape} kind="warn" /><span class="grow">Live updates stopped 40 s ago. Trying again every 8 s.</span><${Button} look="sm">Now<//></div>
      <div class="note-bar bad"><${Shape} kind="bad" /><span class="grow">The disk is full in about 3 hours.</span><a class="btn sm" href="#/storage">Storage</a></div>
      <${Stale} of=${{ error: new Error('The server does not answer.'), data: {}, reload() {} }} />
    </div>
  <//>`;

const States = () =>
  html`<${Panel} flush title="Empty"><${Blank} icon="runs" title="No runs yet" code=${'import model_checkpoint as mc\nmc.save("runs/a", {"model": model}, step=1)'}>This folder has no checkpoints. Save one, and it shows up here within a second.<//><//>
    <${Panel} flush title="Error"><${Failure} error=${Object.assign(new Error('The server does not answer.'), { kind: 'offline' })} retry=${() => {}} /><//>
    <${Panel} flush title="Gone"><${Failure} error=${Object.assign(new Error('There is no run r123.'), { kind: 'missing' })} back=${['#/runs', 'All runs']} /><//>
    <${Panel} flush title="Computing"><${Computing} id="none" what="histograms" /><//>
    <${Panel} flush title="Loading" sub="the shape of what comes"><${Skeleton} rows=${5} /><//>`;

const Jobs = () => html`<${Panel} title="Jobs">${JOBS.map((job) => html`<${Job} job=${job} />`)}<//>`;

function ShortTable() {
  const [selected, setSelected] = useState(new Set(['s2']));
  const [sort, setSort] = useState('-step');
  const chosen = useColumns('kit');
  return html`<${Panel} flush title="Table" sub="one row is selected" end=${html`<${ColumnMenu} chosen=${chosen} columns=${SHORT_COLUMNS} />`}>
    <${Table} label="Short table" rows=${SHORT} rowKey=${(row) => row.id} columns=${SHORT_COLUMNS} chosen=${chosen} sort=${sortFrom(sort)} onSort=${setSort} selected=${selected} onSelect=${setSelected}
      sub=${(row) => 'val_loss ' + row.value} rowClass=${(row) => (row.health === 'damaged' ? 'drop' : '')} actions=${() => html`<${Menu} label="Actions" icon="dots" look="ghost sm icon"><a href="#/kit">Open</a><//>`} />
    <div class="selbar"><b>1 selected</b><${Button} look="pri" icon="swap" disabled>Diff<//><${Button} look="ghost">Clear<//></div>
  <//>`;
}

const NoMatch = () =>
  html`<${Panel} flush title="No match"><${Table} label="Table without rows" rows=${[]} rowKey=${(row) => row.id} columns=${SHORT_COLUMNS}
    empty=${html`<${Blank} icon="search" title="No run matches" action=${html`<${Button}>Clear the filter<//>`}>Nothing fits <code>tag:papre</code>.<//>`} /><//>`;

export default function Kit() {
  useCrumbs([['Component kit']]);
  return html`<div class="page">
    <${Head} title="Component kit">${Object.keys(STATUS).length} states, ${COLOURS.length} colours and every part the pages are made of, in each of its states.<//>
    <dl class="stats"><${Stat} label="Figure" value="42 556" unit="of 60 000" note="with a note" /><${Stat} label="Metric" value="2.68" note="best 2.662" /><${Stat} label="None" value="–" /></dl>
    <div class="kit">
      <${Statuses} /><${Controls} />
      <${Panel} title="Query bar" sub="a wrong name says what was meant"><${QueryBar} query="vall_loss < 0.3" onChange=${() => {}} told=${WRONG} /><//>
      <${Asking} /><${Notes} /><${States} />
      <${Panel} title="Drawings"><div class="row wrap drawings"><${Spark} values=${CURVE} label="example" /><${Spark} dim values=${CURVE} label="example, ended" /><${Histogram} before=${BELL} label="example" /><${Histogram} before=${BELL} after=${[...BELL].reverse().map((v, i) => v * (1 + i / 64))} width=${160} height=${48} label="before and after" /></div><div class="after"><${FileMap} from=${300} to=${420} size=${1000} /></div><//>
      <${Jobs} /><${ShortTable} /><${NoMatch} />
      <${Panel} title="Chart"><${Chart} label="Example chart" series=${CHART} marks=${MARKS} height=${200} /><//>
      <${Panel} title="Colours"><div class="swatches">${COLOURS.map((name) => html`<div><i style=${{ background: `var(--${name})` }}></i>${name}</div>`)}</div><//>
    </div>
    <h2>Saves</h2>
    <${SaveTimeline} run=${RUN} asked=${{ data: { rows: SAVES } }} />
    <${Panel} flush title="Long table" sub="10 000 rows, about 50 in the document"><${Table} label="Long table" rows=${LONG} rowKey=${(row) => row.id} columns=${LONG_COLUMNS} /><//>
  </div>`;
}
