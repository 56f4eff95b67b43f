// Which columns are shown: those the user chose (kept in this browser), and of them those that fit, by priority.
import { html, useState } from '../../vendor/preact-htm.js';
import { prefs } from '../core/prefs.js';
import { Menu } from '../ui/menu.js';

export function useColumns(table) {
  const [picked, set] = useState(() => prefs.get('cols.' + table, null)); // null: automatic
  return {
    picked,
    pick(next) {
      set(next);
      prefs.set('cols.' + table, next);
    },
  };
}

export function ColumnMenu({ chosen, columns }) {
  const flip = (key) => (event) => {
    const all = chosen.picked || columns.map((column) => column.key);
    chosen.pick(event.target.checked ? [...all, key] : all.filter((one) => one !== key));
  };
  return html`<${Menu} label="Columns" icon="cols" look="icon">
    <div class="head">Columns (kept in this browser)</div>
    ${columns
      .filter((column) => !column.fixed)
      .map(
        (column) =>
          html`<label>
            <input type="checkbox" checked=${!chosen.picked || chosen.picked.includes(column.key)} onChange=${flip(column.key)} />${column.label}
          </label>`,
      )}
    <hr />
    <button type="button" onClick=${() => chosen.pick(null)}>Back to automatic</button>
  <//>`;
}

export const widthOf = (column, narrow) => (narrow && column.narrow) || column.width;

// Lowest priority goes first; its gist is in the row's second line. So nothing scrolls sideways at 360 px.
export function fit(columns, picked, room, narrow) {
  const list = columns.filter((column) => column.fixed || !picked || picked.includes(column.key));
  const kept = new Set();
  for (const column of [...list].sort((a, b) => (a.prio ?? 1) - (b.prio ?? 1))) {
    const width = widthOf(column, narrow);
    if (room < width && column.prio !== 0) break;
    room -= width;
    kept.add(column.key);
  }
  return list.filter((column) => kept.has(column.key));
}
