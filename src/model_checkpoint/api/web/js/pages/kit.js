// Every component in every state on one page: what the tests photograph, and what a newcomer copies from.
import { html, useState } from '../../vendor/preact-htm.js';
import { Chart } from '../chart/chart.js';
import { toast } from '../data/toasts.js';
import { useCrumbs } from '../frame/crumbs.js';
import { Table } from '../table/table.js';
import { Button, Chip } from '../ui/button.js';
import { Segments, Select } from '../ui/choice.js';
import { Ask, Confirm, useDialog } from '../ui/dialog.js';
import { Histogram, Spark } from '../ui/drawings.js';
import { Icon, Shape } from '../ui/icons.js';
import { Head, Meter, Panel, Stat } from '../ui/panel.js';
import { QueryBar } from '../ui/query_bar.js';
import { Blank, Computing, Failure, Skeleton } from '../ui/states.js';
import { Badge, STATUS } from '../ui/status.js';
import { Reasons } from './reasons.js';

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
      <${Chip} on=${true} count="4" onClick=${() => {}}>Alive<//><${Chip} on=${false} count="2" onClick=${() => {}}>Failed<//><span class="chip">tag</span><kbd>g</kbd><kbd>r</kbd>
    </div>
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
    </div>
  <//>`;

const States = () =>
  html`<${Panel} flush title="Empty"><${Blank} icon="runs" title="No runs yet" code=${'import model_checkpoint as mc\nmc.save("runs/a", {"model": model}, step=1)'}>This folder has no checkpoints. Save one, and it shows up here within a second.<//><//>
    <${Panel} flush title="Error"><${Failure} error=${Object.assign(new Error('The server does not answer.'), { kind: 'offline' })} retry=${() => {}} /><//>
    <${Panel} flush title="Gone"><${Failure} error=${Object.assign(new Error('There is no run r123.'), { kind: 'missing' })} back=${['#/runs', 'All runs']} /><//>
    <${Panel} flush title="Computing"><${Computing} id="none" what="histograms" /><//>
    <${Panel} flush title="Loading" sub="the shape of what comes"><${Skeleton} rows=${5} /><//>`;

export default function Kit() {
  useCrumbs([['Component kit']]);
  return html`<div class="page">
    <${Head} title="Component kit">${Object.keys(STATUS).length} states, ${COLOURS.length} colours and every part the pages are made of, in each of its states.<//>
    <dl class="stats"><${Stat} label="Figure" value="42 556" unit="of 60 000" note="with a note" /><${Stat} label="Metric" value="2.68" note="best 2.662" /><${Stat} label="None" value="–" /></dl>
    <div class="kit">
      <${Statuses} /><${Controls} />
      <${Panel} title="Query bar" sub="a wrong name says what was meant"><${QueryBar} query="vall_loss < 0.3" onChange=${() => {}} told=${WRONG} /><//>
      <${Asking} /><${Notes} /><${States} />
      <${Panel} title="Drawings"><div class="row wrap drawings"><${Spark} values=${CURVE} label="example" /><${Spark} dim values=${CURVE} label="example, ended" /><${Histogram} before=${BELL} label="example" /><${Histogram} before=${BELL} after=${[...BELL].reverse().map((v, i) => v * (1 + i / 64))} width=${160} height=${48} label="before and after" /></div><//>
      <${Panel} title="Chart"><${Chart} label="Example chart" series=${CHART} marks=${MARKS} height=${200} /><//>
      <${Panel} title="Colours"><div class="swatches">${COLOURS.map((name) => html`<div><i style=${{ background: `var(--${name})` }}></i>${name}</div>`)}</div><//>
    </div>
    <${Panel} flush title="Long table" sub="10 000 rows, about 50 in the document"><${Table} label="Long table" rows=${LONG} rowKey=${(row) => row.id} columns=${LONG_COLUMNS} /><//>
  </div>`;
}
