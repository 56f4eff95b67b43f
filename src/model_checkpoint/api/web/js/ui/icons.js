// One 16 px stroke set of our own. Status shapes differ in outline, not only in colour: circle, dashed ring, diamond, arrow ring, triangle, pin, square.
import { html } from '../../vendor/preact-htm.js';
const PATHS = {
  runs: 'M2.5 12l3-4 3 2 5-6M2.5 13.5h11',
  box: 'M2.5 5L8 2l5.5 3v6L8 14l-5.5-3zM2.5 5L8 8l5.5-3M8 8v6',
  compare: 'M2 11c3 0 3-6 6-6s3 3 6 3M2 6c3 0 4 5 7 5h5',
  disk: 'M2.5 9.5h11v3.5h-11zM2.5 9.5L4.5 3h7l2 6.5M11 11.3h.5',
  shield: 'M8 2l5 2v4c0 3-2.2 5-5 6-2.8-1-5-3-5-6V4zM5.8 8l1.6 1.6 2.9-3.2',
  tree: 'M4 3.5v9M4 6.5c0 2.5 8 .5 8 4M4 2.2a1.3 1.3 0 100 2.6 1.3 1.3 0 000-2.6M4 11.2a1.3 1.3 0 100 2.6 1.3 1.3 0 000-2.6M12 10a1.3 1.3 0 100 2.6A1.3 1.3 0 0012 10',
  clock: 'M8 2.2a5.8 5.8 0 100 11.6A5.8 5.8 0 008 2.2zM8 5v3.2l2.2 1.4',
  memory: 'M3 5h10v6H3zM5 5V3M8 5V3m3 2V3M5 13v-2m3 2v-2m3 2v-2',
  scale: 'M2.5 13V9.5h3V6.5h3v-3h5',
  kit: 'M2.5 2.5h4.5v4.5H2.5zM9 2.5h4.5v4.5H9zM2.5 9h4.5v4.5H2.5zM11.2 9a2.2 2.2 0 100 4.5 2.2 2.2 0 000-4.5',
  search: 'M7 2.5a4.5 4.5 0 100 9 4.5 4.5 0 000-9zM10.3 10.3L14 14',
  menu: 'M2.5 4h11M2.5 8h11M2.5 12h11',
  sun: 'M8 5a3 3 0 100 6 3 3 0 000-6M8 1.5v1.2M8 13.3v1.2M1.5 8h1.2M13.3 8h1.2M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9',
  moon: 'M13 9.5A5.5 5.5 0 016.5 3a5.5 5.5 0 106.5 6.5z',
  help: 'M8 2.2a5.8 5.8 0 100 11.6A5.8 5.8 0 008 2.2zM6.3 6.4c.2-2 3.4-1.9 3.4 0 0 1.2-1.7 1.3-1.7 2.5M8 11.2v.1',
  x: 'M4 4l8 8M12 4l-8 8',
  dots: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
  cols: 'M2.5 3h11v10h-11zM6.2 3v10M9.9 3v10',
  copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
  trash: 'M3 4.5h10M6.5 4.5V3h3v1.5M4.3 4.5l.6 9h6.2l.6-9',
  undo: 'M5.5 3L2.5 6l3 3M2.5 6h6.5a4 4 0 010 8H6',
  play: 'M4.5 3l8 5-8 5z',
  check: 'M3 8.5l3.2 3.2L13 4.8',
  chev: 'M4.5 6.5L8 10l3.5-3.5',
  tag: 'M2.5 2.5H8l5.5 5.5-5.5 5.5L2.5 8zM5.2 5.2h.01',
  swap: 'M3 5.5h10L10.5 3M13 10.5H3L5.5 13',
  zoom: 'M7 2.5a4.5 4.5 0 100 9 4.5 4.5 0 000-9zM10.3 10.3L14 14M5 7h4',
  bolt: 'M9 1.8L3.8 9H8l-1 5.2L12.2 7H8z',
  wrench: 'M9.8 2.6a3.5 3.5 0 00-3.6 4.8L2.6 11l2.4 2.4 3.6-3.6a3.5 3.5 0 004.8-3.6l-2 2-2.2-.6-.6-2.2z',
  link: 'M6.5 9.5l3-3M7 4.5l1.3-1.3a3 3 0 014.5 4.5L11.5 9M9 11.5l-1.3 1.3a3 3 0 01-4.5-4.5L4.5 7',
  note: 'M3 2.5h10v11H3zM5.5 5.5h5M5.5 8h5M5.5 10.5h3',
  save: 'M8 2.5v7M5 7l3 3 3-3M3 13.5h10',
};
export const Icon = ({ name, small }) =>
  html`<svg class=${'ic' + (small ? ' s12' : '')} viewBox="0 0 16 16" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
const SHAPES = {
  ok: html`<circle cx="8" cy="8" r="6.2" fill="currentColor" stroke="none"/><path d="M5.2 8.2l2 2 3.6-4.2" stroke="var(--panel)"/>`,
  unv: html`<circle cx="8" cy="8" r="5.6" stroke-dasharray="2.6 2.2"/><path d="M8 7.9h.01" stroke-width="2.4"/>`,
  bad: html`<path d="M8 1.2L14.8 8 8 14.8 1.2 8z" fill="currentColor" stroke="none"/><path d="M6 6l4 4M10 6l-4 4" stroke="var(--panel)"/>`,
  busy: html`<circle cx="8" cy="8" r="5.8" opacity=".3"/><path class="spin" d="M8 2.2a5.8 5.8 0 015.8 5.8"/><path d="M8 5.2v5M6 8.4l2 2 2-2"/>`,
  warn: html`<path d="M8 2L14.6 13.6H1.4z" fill="currentColor" stroke="none"/><path d="M8 6.4v3.2M8 11.6v.1" stroke="var(--panel)" stroke-width="1.7"/>`,
  pin: html`<path d="M5.2 2.5h5.6l-.8 4 2 2.6H4l2-2.6zM8 9.2V14" fill="currentColor"/>`,
  idle: html`<rect x="3" y="3" width="10" height="10" rx="2"/><path d="M5.6 8.1l1.7 1.7 3.2-3.6"/>`,
  stop: html`<rect x="3" y="3" width="10" height="10" rx="2"/><path d="M6 8h4"/>`,
  live: html`<circle cx="8" cy="8" r="3" fill="currentColor" stroke="none"/><circle cx="8" cy="8" r="5.9" opacity=".45"/>`,
  dead: html`<rect x="2.6" y="2.6" width="10.8" height="10.8" rx="1" fill="currentColor" stroke="none"/><path d="M5.6 5.6l4.8 4.8M10.4 5.6l-4.8 4.8" stroke="var(--panel)"/>`,
};
export const Shape = ({ kind }) => html`<svg class="ic s12" viewBox="0 0 16 16" aria-hidden="true">${SHAPES[kind]}</svg>`;
export const Logo = () =>
  html`<svg viewBox="0 0 16 16" aria-hidden="true"><rect width="16" height="16" rx="4" fill="var(--accent)"/><path d="M3.5 5.2h9M3.5 8h9M3.5 10.8h3" stroke="var(--accent-fg)" stroke-width="1.4" stroke-linecap="round" opacity=".6"/><path d="M8.3 10.6l1.6 1.7 3-3.5" fill="none" stroke="var(--accent-fg)" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round"/></svg>`;
