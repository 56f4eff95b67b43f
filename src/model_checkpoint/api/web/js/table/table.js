// The one table. A column: {key, label, width, render(row), prio, fixed, grow, narrow, num, title, sort}. `sort: true` or a
// word: the server sorts, by the key or the word; a function sorts what is here. What does not fit moves into `sub`, a second line.
import { html, useState, useEffect, useMemo, useRef } from '../../vendor/preact-htm.js';
import { keys } from '../core/keys.js';
import { useWidth } from '../ui/width.js';
import { fit, widthOf } from './columns.js';
import { useRowsInSight } from './scroll.js';

const NARROW = 620;
const ROW = 36;
const TWO_LINES = 58;

export const sortFrom = (text) => (text.startsWith('-') ? { key: text.slice(1), dir: 'desc' } : { key: text, dir: 'asc' });
const sortKey = (column) => (typeof column.sort === 'string' ? column.sort : column.key);

function inOrder(rows, column, dir) {
  if (typeof column?.sort !== 'function') return rows;
  const sign = dir === 'desc' ? -1 : 1;
  return [...rows].sort((a, b) => {
    const x = column.sort(a);
    const y = column.sort(b);
    if (x == null || y == null) return x == null ? (y == null ? 0 : 1) : -1; // what is missing comes last, either way
    return (x < y ? -1 : x > y ? 1 : 0) * sign;
  });
}

function Heading({ column, sort, onSort }) {
  const active = !!column.sort && sort?.key === sortKey(column);
  const down = active && sort.dir === 'desc';
  const flip = () => onSort((active && !down ? '-' : '') + sortKey(column));
  return html`<th scope="col" class=${column.num ? 'num' : ''} title=${column.title} aria-sort=${active ? (down ? 'descending' : 'ascending') : null}>
    ${
      column.sort && onSort
        ? html`<button type="button" onClick=${flip}>${column.label}<span class="arrow" aria-hidden="true">${down ? '↓' : '↑'}</span></button>`
        : column.label
    }
  </th>`;
}

// j, k, Enter, x on the page's main table.
function useRowKeys(primary, rows, body, { onOpen, toggle, rowKey }) {
  const [current, set] = useState(-1);
  const latest = useRef();
  latest.current = { rows, current, onOpen, toggle }; // keys come faster than frames
  useEffect(() => {
    if (!primary) return undefined;
    const here = () => latest.current.rows[latest.current.current];
    const move = (by) => {
      const now = latest.current;
      now.current = Math.max(0, Math.min(now.rows.length - 1, now.current + by));
      set(now.current);
      requestAnimationFrame(() => body.current?.querySelector('.cur')?.scrollIntoView({ block: 'nearest' }));
    };
    const enter = (event) => {
      const own = event.target.closest('a,button,summary,input');
      if (own) own.click();
      else if (here()) latest.current.onOpen?.(here());
    };
    const pick = () => here() && latest.current.toggle?.(rowKey(here()));
    return keys({ j: () => move(1), k: () => move(-1), Enter: enter, x: pick });
  }, [primary]);
  return current;
}

const Pad = ({ span, height }) =>
  html`<tr class="pad" aria-hidden="true"><td colspan=${span} style=${{ height: height + 'px' }}></td></tr>`;

export function Table(props) {
  const {
    columns,
    rows,
    rowKey,
    label,
    onOpen,
    sort,
    onSort,
    selected,
    onSelect,
    actions,
    sub,
    chosen,
    primary,
    empty,
    rowClass,
    more,
    total,
  } = props;
  const [ref, width] = useWidth();
  const body = useRef();
  const narrow = width > 0 && width < NARROW;
  const pickable = onSelect && !narrow;
  const rowHeight = narrow && sub ? TWO_LINES : ROW;
  const room = (width || 1200) - (pickable ? 36 : 0) - (actions ? 44 : 0) - 24;
  const shown = useMemo(() => fit(columns, chosen?.picked, room, narrow), [columns, room, chosen?.picked, narrow]);
  const sorted = useMemo(
    () => inOrder(rows, sort && columns.find((column) => sortKey(column) === sort.key), sort?.dir),
    [rows, sort?.key, sort?.dir, columns],
  );
  const { from, to } = useRowsInSight(ref, sorted.length, rowHeight, more);
  const toggle =
    onSelect && ((key) => onSelect((old) => new Set(old.has(key) ? [...old].filter((one) => one !== key) : [...old, key])));
  const current = useRowKeys(primary, sorted, body, { onOpen, toggle, rowKey });
  const all = selected && sorted.length > 0 && sorted.every((row) => selected.has(rowKey(row)));
  const span = shown.length + (pickable ? 1 : 0) + (actions ? 1 : 0);
  const clicked = (row) => (event) => onOpen && !event.target.closest('a,button,input,label,.menu,summary') && onOpen(row);
  const looks = (row, key, i) =>
    ['r', onOpen && 'open-able', selected?.has(key) && 'picked', i === current && 'cur', rowClass?.(row)]
      .filter(Boolean)
      .join(' ');

  // One list of cells with keys: of several side by side, one that goes leaves those behind it in a wrong order.
  const inARow = (pick, cell, act) => [...(pickable ? [pick] : []), ...shown.map(cell), ...(actions ? [act()] : [])];

  const line = (row, i) => {
    const key = rowKey(row);
    return html`<tr key=${key} aria-rowindex=${i + 2} class=${looks(row, key, i)} onClick=${clicked(row)}>
      ${inARow(
        html`<td key="pick"><input type="checkbox" checked=${selected?.has(key)} aria-label=${'Select row ' + (i + 1)} onChange=${() => toggle(key)} /></td>`,
        (column) =>
          html`<td key=${column.key} class=${column.num ? 'num' : ''}>${column.render(row)}${column.fixed && narrow && sub && html`<span class="sub">${sub(row)}</span>`}</td>`,
        () => html`<td key="act" class="num overflows">${actions(row)}</td>`,
      )}
    </tr>`;
  };

  if (width === 0) return html`<div class="tbl" ref=${ref}></div>`;
  return html`<div class=${'tbl' + (narrow && sub ? ' narrow' : '')} ref=${ref}>
    <table aria-label=${label} aria-rowcount=${(total ?? sorted.length) + 1}>
      <colgroup>
        ${inARow(
          html`<col key="pick" style=${{ width: '36px' }} />`,
          (column) => html`<col key=${column.key} style=${{ width: column.grow ? 'auto' : widthOf(column, narrow) + 'px' }} />`,
          () => html`<col key="act" style=${{ width: '44px' }} />`,
        )}
      </colgroup>
      <thead>
        <tr aria-rowindex="1">
          ${inARow(
            html`<th key="pick" scope="col"><input type="checkbox" checked=${all} aria-label="Select all" onChange=${() => onSelect(new Set(all ? [] : sorted.map(rowKey)))} /></th>`,
            (column) => html`<${Heading} key=${column.key} column=${column} sort=${sort} onSort=${onSort} />`,
            () => html`<th key="act" scope="col"><span class="vh">Actions</span></th>`,
          )}
        </tr>
      </thead>
      <tbody ref=${body}>
        ${from > 0 && html`<${Pad} span=${span} height=${from * rowHeight} />`}
        ${sorted.slice(from, to).map((row, i) => line(row, from + i))}
        ${to < sorted.length && html`<${Pad} span=${span} height=${(sorted.length - to) * rowHeight} />`}
      </tbody>
    </table>
    ${sorted.length === 0 && empty}
  </div>`;
}
