// Checkpoints under the axis, as real links. Those too close to hit become one with a count; damaged > pinned > best.
import { html, useMemo } from '../../vendor/preact-htm.js';

const RANK = { bad: 3, pin: 2, best: 1 };
const FINGER = 26;
const MOUSE = 15;
const SHAPES = {
  bad: html`<path d="M6 0l6 6-6 6-6-6z" fill="currentColor" />`,
  pin: html`<path d="M3 0h6L8 5l2 2H2l2-2zM5.3 7h1.4v5H5.3z" fill="currentColor" />`,
  best: html`<path d="M6 0l1.8 4 4.2.4-3.2 2.9 1 4.4L6 9.4 2.2 11.7l1-4.4L0 4.4 4.2 4z" fill="currentColor" />`,
  plain: html`<path d="M6 1.5l5 8.5H1z" fill="none" stroke="currentColor" stroke-width="1.7" stroke-linejoin="round" />`,
};

export function merge(marks, { min, max, width }, near) {
  const out = [];
  for (const mark of [...marks].sort((a, b) => a.x - b.x)) {
    if (mark.x < min || mark.x > max) continue;
    const px = ((mark.x - min) / (max - min)) * width;
    const last = out[out.length - 1];
    if (!last || px - last.px >= near) out.push({ ...mark, px, n: 1 });
    else if ((RANK[mark.kind] || 0) > (RANK[last.kind] || 0)) Object.assign(last, mark, { px: last.px, n: last.n + 1 });
    else last.n++;
  }
  return out;
}

export function Marks({ marks, place }) {
  const near = matchMedia('(pointer: coarse)').matches ? FINGER : MOUSE;
  const shown = useMemo(() => (place ? merge(marks, place, near) : []), [place, marks]);
  if (!place) return null;
  return html`<div class="marks" style=${{ left: place.left + 'px', top: place.top + 1 + 'px', width: place.width + 'px' }}>
    ${shown.map((mark) => {
      const label = mark.n > 1 ? `${mark.n} here, first to see: ${mark.label}` : mark.label;
      return html`<a key=${mark.id} class=${'mark ' + (mark.kind || '')} style=${{ left: mark.px + 'px' }} href=${mark.href} title=${label} aria-label=${label}>
        ${mark.n > 3 ? html`<span class="n">${mark.n}</span>` : html`<svg viewBox="0 0 12 12" aria-hidden="true">${SHAPES[mark.kind || 'plain']}</svg>`}
      </a>`;
    })}
  </div>`;
}
