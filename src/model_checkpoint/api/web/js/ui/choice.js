// One of several: as buttons in a row, as links under a title, as a list that drops down.
import { html } from '../../vendor/preact-htm.js';

export const Segments = ({ value, options, onChange, label }) =>
  html`<div class="seg" role="group" aria-label=${label}>
    ${options.map(
      ([key, text]) =>
        html`<button type="button" aria-pressed=${String(key === value)} onClick=${() => onChange(key)}>${text}</button>`,
    )}
  </div>`;

// The current tab is scrolled into view on narrow screens.
function intoView(bar) {
  const current = bar?.querySelector('[aria-current]');
  if (current) bar.scrollLeft = Math.max(0, current.offsetLeft - bar.offsetLeft - 40);
}

export const Tabs = ({ items, current, label }) =>
  html`<nav class="tabs" aria-label=${label} ref=${intoView}>
    ${items.map(
      ([key, text, link, count]) =>
        html`<a href=${link} aria-current=${key === current ? 'page' : null}>
          ${text}${count != null && html`<span class="n">${count}</span>`}
        </a>`,
    )}
  </nav>`;

// `selected` on the option, not only `value` on the list: before the options exist a value finds none of them.
export const Select = ({ label, value, options, onChange, bare }) =>
  html`<label class=${bare ? 'small muted' : 'ctl'}>
    ${label}<select class="input" value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${options.map(([key, text]) => html`<option value=${key} selected=${key === value}>${text}</option>`)}
    </select>
  </label>`;
