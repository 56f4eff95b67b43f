// Small drawings for table cells: plain SVG, no library, no observer per cell.
import { html } from '../../vendor/preact-htm.js';

export function Spark({ values, width = 96, height = 22, dim, label }) {
  if (!values?.length) return html`<span class="subtle small">no points</span>`;
  const known = values.filter((v) => Number.isFinite(v)); // what is NaN or infinite was measured, but cannot be drawn
  if (known.length < 2) return html`<span class="subtle small">${known.length ? 'mostly not finite' : 'not finite'}</span>`;
  const low = Math.min(...known);
  const high = Math.max(...known);
  const scale = (height - 5) / (high - low || 1);
  const dx = (width - 4) / (known.length - 1);
  const y = (v) => (height - 2.5 - (v - low) * scale).toFixed(1);
  const path = known.map((v, i) => (i ? 'L' : 'M') + (i * dx).toFixed(1) + ' ' + y(v)).join('');
  return html`<svg class=${'spark' + (dim ? ' dim' : '')} width=${width} height=${height} role="img" aria-label=${label}>
    <path class="area" d=${path + `L${width - 4} ${height}L0 ${height}Z`} /><path d=${path} />
    <circle cx=${width - 4} cy=${y(known[known.length - 1])} r="2" />
  </svg>`;
}

export function Histogram({ before, after, width = 110, height = 24, label }) {
  if (!before || !before.length) return html`<span class="subtle small">no values</span>`;
  const top = Math.max(...before, ...(after || [0])) || 1;
  const step = width / before.length;
  const bar = (v, i, look, inset, wide) =>
    html`<rect class=${look} x=${i * step + inset} y=${height - (v / top) * height} width=${wide} height=${(v / top) * height} />`;
  return html`<svg class="hist" width=${width} height=${height} role="img" aria-label=${label}>
    ${before.map((v, i) => bar(v, i, '', 0, step - 0.7))}${after?.map((v, i) => bar(v, i, 'b', step * 0.25, step * 0.5))}
  </svg>`;
}

// Where in a file the damaged bytes lie; their address stands beside it in words.
export function FileMap({ from, to, size }) {
  if (from == null || !size) return null;
  return html`<svg class="filemap" viewBox="0 0 1000 14" preserveAspectRatio="none" aria-hidden="true">
    <rect class="bg" x=".5" y=".5" width="999" height="13" rx="2" />
    <rect class="x" x=${Math.min(995, (from / size) * 1000)} y="0" width=${Math.max(5, ((to - from) / size) * 1000)} height="14" />
  </svg>`;
}
