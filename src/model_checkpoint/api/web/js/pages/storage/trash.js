// What was removed and can still come back.
import { html } from '../../../vendor/preact-htm.js';
import { bytes, dur, fullName, int, plural } from '../../core/format.js';
import { now } from '../../core/clock.js';
import { restore } from '../../data/actions.js';
import { grace, writable } from '../../data/server.js';
import { Table } from '../../table/table.js';
import { Button } from '../../ui/button.js';
import { Blank } from '../../ui/states.js';

const left = (row) => dur(Math.max(0, row.until - now()));

const columns = (back) => [
  {
    key: 'n',
    label: 'Checkpoint',
    width: 220,
    prio: 0,
    fixed: true,
    grow: true,
    render: (row) => html`step ${int(row.step)} <span class="subtle small">${fullName(row)}</span>`,
  },
  { key: 'until', label: 'Freed within', width: 110, prio: 2, num: true, render: left },
  { key: 'bytes', label: 'Bytes', width: 90, prio: 2, num: true, render: (row) => bytes(row.bytes) },
  {
    key: 'back',
    label: html`<span class="vh">Restore</span>`,
    width: 110,
    prio: 0,
    num: true,
    render: (row) => writable(row) && html`<${Button} look="sm" icon="undo" onClick=${() => back([row.id])}>Restore<//>`,
  },
];

export function Trash({ rows, after }) {
  if (!rows.length)
    return html`<${Blank} icon="trash" title="The trash is empty">What you remove waits here for ${grace()} and can be taken back with one click.<//>`;
  const back = (ids) => restore(ids, after);
  const mine = rows.filter(writable);
  const total = rows.reduce((sum, row) => sum + row.bytes, 0);
  return html`<div class="tbl-tools">
      <span class="muted">${plural(rows.length, 'checkpoint')}, ${bytes(total)}. The bytes are freed when the grace time ends.</span>
      ${mine.length > 0 && html`<div class="end"><${Button} look="sm" icon="undo" onClick=${() => back(mine.map((row) => row.id))}>Restore all<//></div>`}
    </div>
    <${Table} label="Trash" rows=${rows} rowKey=${(row) => row.id} sub=${(row) => `${bytes(row.bytes)} · freed within ${left(row)}`} columns=${columns(back)} />`;
}
