import { html } from '../../vendor/preact-htm.js';
import { Icon } from './icons.js';

export const Button = ({ icon, children, look = '', label, ...rest }) =>
  html`<button type="button" class=${'btn ' + look} aria-label=${label} title=${rest.title || label} ...${rest}>
    ${icon && html`<${Icon} name=${icon} />`}${children}
  </button>`;

export const Chip = ({ on, count, children, onClick }) =>
  html`<button type="button" class="chip" aria-pressed=${String(on)} onClick=${onClick}>${children} <b>${count}</b></button>`;

export const Tags = ({ list }) => (list || []).map((tag) => html` <span class="chip">${tag}</span>`);
