// What pages are laid out with: title and sentence, panels, a strip of figures, a bar that fills.
import { html } from '../../vendor/preact-htm.js';

export const Head = ({ title, children, end }) =>
  html`<div class="pagehead">
    <div class="grow"><h1>${title}</h1>${children && html`<p class="answer">${children}</p>`}</div>
    ${end && html`<div class="btngroup">${end}</div>`}
  </div>`;

export const Panel = ({ title, sub, end, children, flush, look = '' }) =>
  html`<section class=${'panel ' + look}>
    ${
      title &&
      html`<header>
      <h2>${title}</h2>
      ${sub && html`<span class="sub">${sub}</span>`}${end && html`<div class="end">${end}</div>`}
    </header>`
    }
    <div class=${'body' + (flush ? ' flush' : '')}>${children}</div>
  </section>`;

export const Stat = ({ label, value, unit, note }) =>
  html`<div class="stat">
    <dt>${label}</dt>
    <dd>${value}${unit && html` <small>${unit}</small>`}</dd>
    ${note && html`<dd class="note">${note}</dd>`}
  </div>`;

export const Meter = ({ share, look = '', label }) =>
  html`<div
    class=${'bar1 ' + look}
    role="progressbar"
    aria-valuenow=${Math.round(share * 100)}
    aria-valuemin="0"
    aria-valuemax="100"
    aria-label=${label}
  >
    <i style=${{ width: Math.max(0, Math.min(100, share * 100)) + '%' }}></i>
  </div>`;

export const Key = ({ colour, look, children }) =>
  html`<span class="key"><i class=${'swatch ' + (look || '')} style=${colour ? { background: `var(${colour})` } : null}></i>${children}</span>`;
