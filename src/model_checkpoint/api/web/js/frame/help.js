import { html } from '../../vendor/preact-htm.js';
import { Dialog } from '../ui/dialog.js';

const SHORTCUTS = [
  [['Ctrl K', 'or', '/'], 'search and jump'],
  [['g', 'then', 'r c o l s i t'], 'go to a page'],
  [['j', 'k'], 'next, previous row'],
  [['Enter'], 'open the row'],
  [['x'], 'select the row'],
  [['c'], 'compare selected runs'],
  [['[', ']'], 'previous, next checkpoint of the run'],
  [['p'], 'pin the checkpoint'],
  [['+', '-', '0'], 'zoom the chart in focus'],
  [['d'], 'light or dark'],
  [['?'], 'this list'],
];
const WORDS = ['or', 'then'];

export const Help = ({ onClose }) =>
  html`<${Dialog} title="Keyboard" onClose=${onClose} actions=${html`<form method="dialog"><button class="btn">Close</button></form>`}>
    <dl class="kv">
      ${SHORTCUTS.map(
        ([keys, does]) =>
          html`<dt>${keys.map((key) => (WORDS.includes(key) ? ` ${key} ` : html`<kbd>${key}</kbd> `))}</dt>
            <dd>${does}</dd>`,
      )}
    </dl>
  <//>`;
