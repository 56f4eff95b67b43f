// Checkpoints, of the whole store or of one run, with what keeps each and what may be done to it.
import { html, useMemo, useState } from '../../vendor/preact-htm.js';
import { checkpointLink, go, href, useOption } from '../core/address.js';
import { ago, bytes, fullName, int, num, plural } from '../core/format.js';
import { metricOf } from '../core/metrics.js';
import { pin } from '../data/actions.js';
import { writable } from '../data/server.js';
import { ColumnMenu, useColumns } from '../table/columns.js';
import { Table, sortFrom } from '../table/table.js';
import { Button, Tags } from '../ui/button.js';
import { useDialog } from '../ui/dialog.js';
import { Shape } from '../ui/icons.js';
import { Menu } from '../ui/menu.js';
import { Blank } from '../ui/states.js';
import { Badge } from '../ui/status.js';
import { AskNote, AskTags, ConfirmTrash } from './marking.js';
import { Reasons } from './reasons.js';

const Name = ({ row, inRun }) =>
  html`<a class="name" href=${checkpointLink(row.id)}>step ${int(row.step)}</a> ${row.pinned && html`<span class="t-pin" title="pinned"><${Shape} kind="pin" /></span> `}${!inRun && html`<span class="subtle small wide-only">${fullName(row)}</span>`}<${Tags} list=${row.tags} />`;

const columns = (inRun) => [
  {
    key: 'step',
    label: 'Checkpoint',
    width: inRun ? 150 : 230,
    prio: 0,
    fixed: true,
    grow: true,
    sort: true,
    render: (row) => html`<${Name} row=${row} inRun=${inRun} />`,
  },
  {
    key: 'health',
    label: 'Health',
    width: 126,
    narrow: 122,
    prio: 0,
    sort: true,
    render: (row) => html`<${Badge} of=${row.health} />`,
  },
  {
    key: 'verified_at',
    label: 'Verified',
    width: 100,
    prio: 4,
    sort: true,
    render: (row) => html`<span class="muted">${ago(row.verified_at)}</span>`,
  },
  { key: 'reasons', label: 'Kept by', width: 250, prio: 2, render: (row) => html`<${Reasons} of=${row} />` },
  {
    key: 'metric',
    label: 'Metric',
    width: 84,
    num: true,
    prio: 2,
    render: (row) => html`<span class="mono" title=${metricOf(row).name}>${num(metricOf(row).value)}</span>`,
  },
  {
    key: 'unique',
    label: 'Unique',
    width: 84,
    num: true,
    prio: 3,
    sort: true,
    title: 'Bytes no other checkpoint shares',
    render: (row) => bytes(row.unique),
  },
  {
    key: 'bytes',
    label: 'Size',
    width: 84,
    num: true,
    prio: 5,
    sort: true,
    render: (row) => html`<span class="muted">${bytes(row.bytes)}</span>`,
  },
  {
    key: 'at',
    label: 'Saved',
    width: 104,
    num: true,
    prio: 3,
    sort: true,
    render: (row) => html`<span class="muted">${ago(row.at)}</span>`,
  },
  {
    key: 'id',
    label: 'Id',
    width: 110,
    prio: 6,
    render: (row) => html`<code class="subtle ell" title=${row.id}>${row.id.slice(0, 12)}</code>`,
  },
];

function Actions({ row, after, dialog }) {
  const open = (Dialog, props) => () => dialog.open((close) => html`<${Dialog} ...${props} onClose=${close} after=${after} />`);
  return html`<${Menu} label=${'Actions for step ' + row.step} icon="dots" look="ghost sm icon">
    <a href=${checkpointLink(row.id)}>Open</a>
    <a href=${href('/diff', { b: row.id })}>Diff with the one before</a>
    ${writable(row) && html`<button type="button" onClick=${() => pin(row, after)}>${row.pinned ? 'Unpin' : 'Pin'}</button>`}
    ${writable(row) && html`<button type="button" onClick=${open(AskTags, { row })}>Tags</button>`}
    ${writable(row) && html`<button type="button" onClick=${open(AskNote, { row })}>Note</button>`}
    ${
      writable(row) &&
      html`<hr /><button type="button" class="danger" disabled=${row.pinned} onClick=${open(ConfirmTrash, { rows: [row] })}>${row.pinned ? 'Pinned: cannot be removed' : 'Move to trash'}</button>`
    }
  <//>`;
}

function Selection({ list, selected, clear, after, dialog }) {
  const picked = list.rows.filter((row) => selected.has(row.id));
  const two = picked.length === 2;
  const [a, b] = [...picked].sort((one, other) => one.step - other.step);
  const trash = () =>
    dialog.open((close) => html`<${ConfirmTrash} rows=${picked} onClose=${close} after=${() => (clear(), after())} />`);
  return html`<div class="selbar">
    <b>${selected.size} selected</b>
    <${Button} look="pri" icon="swap" disabled=${!two} title=${two ? '' : 'Select two'} onClick=${() => go(href('/diff', { a: a.id, b: b.id }))}>Diff<//>
    ${picked.length > 0 && picked.every(writable) && html`<${Button} icon="trash" look="danger" onClick=${trash}>Trash<//>`}
    <${Button} look="ghost" onClick=${clear}>Clear<//>
  </div>`;
}

export function CheckpointTable({ list, inRun, tools, after }) {
  const [sort, setSort] = useOption('sort', inRun ? '-step' : '-at');
  const [selected, setSelected] = useState(new Set());
  const shown = useMemo(() => columns(inRun), [inRun]);
  const chosen = useColumns('checkpoints');
  const dialog = useDialog();
  const sub = (row) =>
    inRun
      ? `${metricOf(row).name || 'no metric'} ${num(metricOf(row).value)} · ${bytes(row.unique)} · ${ago(row.at)}`
      : `${fullName(row)} · ${num(metricOf(row).value)}`;
  const nothing = html`<${Blank} icon="box" title="No checkpoint here" code=${'mc.save("runs/a", {"model": model}, step=1)'}>This filter shows none, or nothing was saved yet.<//>`;
  return html`<div class="stack">
    <div class="panel">
      <div class="tbl-tools">
        ${tools}
        <div class="end"><span class="small muted">${plural(list.total, 'checkpoint')}</span><${ColumnMenu} chosen=${chosen} columns=${shown} /></div>
      </div>
      <${Table}
        label="Checkpoints"
        primary
        columns=${shown}
        chosen=${chosen}
        rows=${list.rows}
        total=${list.total}
        more=${list.more}
        rowKey=${(row) => row.id}
        sort=${sortFrom(sort)}
        onSort=${setSort}
        selected=${selected}
        onSelect=${setSelected}
        onOpen=${(row) => go(checkpointLink(row.id))}
        sub=${sub}
        actions=${(row) => html`<${Actions} row=${row} after=${after} dialog=${dialog} />`}
        empty=${nothing}
      />
    </div>
    ${selected.size > 0 && html`<${Selection} list=${list} selected=${selected} clear=${() => setSelected(new Set())} after=${after} dialog=${dialog} />`}
    ${dialog.element}
  </div>`;
}
