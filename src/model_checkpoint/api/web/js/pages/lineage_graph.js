// The drawing of a lineage: tracks, branches, checkpoints as links.
import { html } from '../../vendor/preact-htm.js';
import { checkpointLink, runLink } from '../core/address.js';
import { colour } from '../chart/colours.js';
import { int } from '../core/format.js';
import { useWidth } from '../ui/width.js';

const LANE = 40;
const TOP = 26;
const NARROW = 620;
const TICKS = [10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7];
const ENDED_EARLY = ['failed', 'dead', 'stopped'];
const NAME_CHARS = { true: 11, false: 22 };

function layout(tracks, width) {
  const narrow = width < NARROW;
  const left = narrow ? 104 : 190;
  const right = narrow ? 20 : 90;
  const whole = Math.max(width - 2, narrow ? 300 : 600);
  const last = Math.max(...tracks.map((node) => node.zero + node.last_step), 1);
  const step = TICKS.find((tick) => last / tick < (narrow ? 4 : 8)) || 1e8;
  const ticks = [...Array(Math.floor(last / step) + 1)].map((_, i) => i * step);
  return {
    narrow,
    width: whole,
    height: TOP + tracks.length * LANE + 12,
    ticks,
    x: (at) => left + (at / last) * (whole - left - right),
    y: (row) => TOP + 14 + row * LANE,
  };
}

const short = (name, narrow) => (name.length > NAME_CHARS[narrow] ? name.slice(0, NAME_CHARS[narrow] - 1) + '…' : name);

function Mark({ node, mark, x, y, ink, branch }) {
  const label = `${node.name}, step ${int(mark.step)}, ${mark.health}${mark.pinned ? ', pinned' : ''}${branch ? ', branch point' : ''}`;
  const loud = branch || mark.pinned || mark.health === 'damaged';
  const shape =
    mark.health === 'damaged'
      ? html`<path d=${`M${x} ${y - 7}l7 7-7 7-7-7z`} fill="var(--bad)" stroke="var(--panel)" stroke-width="1.5" />`
      : html`<circle cx=${x} cy=${y} r=${branch ? 6.5 : mark.pinned ? 5 : 3.2} fill=${mark.pinned ? 'var(--pin)' : 'var(--panel)'} stroke=${mark.pinned ? 'var(--pin)' : ink} stroke-width=${branch ? 3 : 2} />`;
  return html`<a href=${checkpointLink(mark.id)} tabindex=${loud ? 0 : -1} aria-label=${label}><title>${label}</title>${shape}</a>`;
}

function Branch({ node, parent, place }) {
  const x = place.x(node.start);
  const to = place.y(node.row);
  return html`<path d=${`M${x} ${place.y(parent.row)} V${to - 9} Q${x} ${to} ${x + 9} ${to}`} fill="none" stroke=${`var(${colour(node.row)})`} stroke-width="2" />`;
}

function Track({ node, place, branches, attached }) {
  const y = place.y(node.row);
  const ink = `var(${colour(node.row)})`;
  const end = place.x(node.zero + node.last_step);
  return html`<g>
    <a href=${runLink(node.run)} aria-label=${`${node.name}, ${node.status}, step ${node.last_step}`}><text x="16" y=${y + 4} class="strong">${short(node.name, place.narrow)}</text></a>
    <line x1=${place.x(node.start) + (attached ? 8 : 0)} x2=${end} y1=${y} y2=${y} stroke=${ink} stroke-width="3" stroke-linecap="round" stroke-dasharray=${ENDED_EARLY.includes(node.status) ? '2 5' : ''} />
    ${node.checkpoints.map((mark) => html`<${Mark} key=${mark.id} node=${node} mark=${mark} x=${place.x(node.zero + mark.step)} y=${y} ink=${ink} branch=${branches.has(mark.id)} />`)}
    ${!place.narrow && html`<text class="m" x=${Math.min(end + 12, place.width - 70)} y=${y + 4}>${node.status === 'alive' ? '● alive' : node.status}</text>`}
  </g>`;
}

export function LineageGraph({ tracks }) {
  const [ref, width] = useWidth();
  const place = width ? layout(tracks, width) : null;
  const by = new Map(tracks.map((node) => [node.run, node]));
  const branches = new Set(tracks.filter((node) => by.has(node.parent)).map((node) => node.checkpoint));
  return html`<section class="panel" ref=${ref}>
    ${
      place &&
      html`<div class="svgbox" tabindex="0" role="region" aria-label="Lineage graph">
      <svg width=${place.width} height=${place.height} role="group" aria-label="Runs and the checkpoints they branched from">
        ${place.ticks.map((at) => html`<g><line class="gridl" x1=${place.x(at)} x2=${place.x(at)} y1=${TOP} y2=${place.height - 6} /><text class="m" x=${place.x(at)} y="16" text-anchor="middle">${at >= 1000 ? at / 1000 + 'k' : at}</text></g>`)}
        ${tracks.filter((node) => by.has(node.parent)).map((node) => html`<${Branch} key=${node.run} node=${node} parent=${by.get(node.parent)} place=${place} />`)}
        ${tracks.map((node) => html`<${Track} key=${node.run} node=${node} place=${place} branches=${branches} attached=${by.has(node.parent)} />`)}
      </svg>
    </div>`
    }
  </section>`;
}

const Sign = ({ width = 16, children, text }) =>
  html`<span class="key"><svg width=${width} height="14" aria-hidden="true">${children}</svg>${text}</span>`;

export const LineageKey = () =>
  html`<div class="keys">
    <${Sign} text="branch point"><circle cx="8" cy="7" r="5" fill="none" stroke="var(--c1)" stroke-width="3" /><//>
    <${Sign} text="checkpoint"><circle cx="8" cy="7" r="3.2" fill="none" stroke="var(--c1)" stroke-width="2" /><//>
    <${Sign} text="pinned"><circle cx="8" cy="7" r="5" fill="var(--pin)" /><//>
    <${Sign} text="damaged"><path d="M8 0l7 7-7 7-7-7z" fill="var(--bad)" /><//>
    <${Sign} width=${26} text="ended early"><line x1="2" x2="24" y1="7" y2="7" stroke="var(--muted)" stroke-width="3" stroke-dasharray="2 5" stroke-linecap="round" /><//>
  </div>`;
