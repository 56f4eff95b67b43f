// Dialogs by which people mark checkpoints and send them to the trash.
import { html } from '../../vendor/preact-htm.js';
import { bytes, fullName, int, plural } from '../core/format.js';
import { changeTags, moveToTrash, setNote } from '../data/actions.js';
import { grace } from '../data/server.js';
import { Ask, Confirm } from '../ui/dialog.js';

const words = (text) => [...new Set(text.split(/[,\s]+/).filter(Boolean))];

export function AskTags({ row, onClose, after }) {
  const save = (text) => {
    const wanted = words(text);
    const add = wanted.filter((tag) => !row.tags.includes(tag));
    const remove = row.tags.filter((tag) => !wanted.includes(tag));
    if (add.length || remove.length) changeTags(row, add, remove, after);
  };
  return html`<${Ask} title=${'Tags of step ' + int(row.step)} label="Tags" value=${row.tags.join(' ')} hint="Separated by spaces." onSave=${save} onClose=${onClose} />`;
}

export const AskNote = ({ row, onClose, after }) =>
  html`<${Ask} title=${'Note on step ' + int(row.step)} label="Note" value=${row.note} onSave=${(text) => setNote(row, text, after)} onClose=${onClose} />`;

// The same on the command line; one command for each catalog that has to hear of it.
function trashCommand(rows) {
  const refs = new Map();
  for (const row of rows) refs.set(row.told_by, [...(refs.get(row.told_by) || []), row.ref]);
  const known = rows.length > 0 && rows.every((row) => row.ref);
  return known && [...refs].map(([told, some]) => ['mckpt rm', ...some, told].filter(Boolean).join(' ')).join(' && ');
}

export function ConfirmTrash({ rows, onClose, after }) {
  const free = rows.filter((row) => !row.pinned);
  const held = rows.length - free.length;
  return html`<${Confirm}
    title=${`Move ${plural(free.length, 'checkpoint')} to trash?`}
    verb="Move to trash"
    cli=${trashCommand(free)}
    onYes=${() => moveToTrash(free, after)}
    onClose=${onClose}
  >
    <p>${bytes(free.reduce((sum, row) => sum + (row.unique || 0), 0))} becomes free in ${grace()}. Until then each can be restored from the trash.</p>
    <ul class="muted small dropped">
      ${free.slice(0, 6).map((row) => html`<li>step ${int(row.step)} of ${fullName(row)}</li>`)}
      ${free.length > 6 && html`<li>and ${int(free.length - 6)} more</li>`}
    </ul>
    ${held > 0 && html`<p class="muted">${plural(held, 'pinned one')} stay${held === 1 ? 's' : ''}.</p>`}
  <//>`;
}
