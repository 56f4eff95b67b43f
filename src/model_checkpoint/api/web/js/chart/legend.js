// The legend is a real table: the accessible form of the drawing, and where lines are hidden and lit.
import { html } from '../../vendor/preact-htm.js';
import { DASHES } from './colours.js';
import { valueAt, lowest } from './curves.js';

const Stroke = ({ one }) =>
  html`<svg viewBox="0 0 20 8" aria-hidden="true">
    <line x1="0" y1="4" x2="20" y2="4" stroke=${`var(${one.color || '--c1'})`} stroke-width="2.4" stroke-dasharray=${DASHES[one.dash || 0].join(' ')} />
  </svg>`;

export function Legend({ series, label, at, atWords, format, hidden, hide, light }) {
  const line = (one, i) =>
    html`<tr key=${one.id} class=${hidden[one.id] ? 'off' : ''} onMouseEnter=${() => series.length > 1 && light(i)} onMouseLeave=${() => light(null)}>
      <td>
        <button type="button" aria-pressed=${String(!hidden[one.id])} title="Click to hide or show" onClick=${() => hide(one.id)}>
          <${Stroke} one=${one} /><span class="ell">${one.label}</span>
        </button>
      </td>
      <td class="v mono">${format(valueAt(one, at))}</td>
      <td class="mono">${format(lowest(one))}</td>
    </tr>`;
  return html`<table class="legend" aria-label=${'Values: ' + label}>
    <thead>
      <tr>
        <th scope="col">${at == null ? 'last values' : atWords(at)}</th>
        <th scope="col">${at == null ? 'last' : 'here'}</th>
        <th scope="col">lowest</th>
      </tr>
    </thead>
    <tbody>${series.map(line)}</tbody>
  </table>`;
}
