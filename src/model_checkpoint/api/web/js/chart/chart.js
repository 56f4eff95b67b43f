// The one chart: uPlot draws, the legend and the marks are real elements.
// series: [{id, label, x, last, min?, max?, color, dash, gaps, plain (never smoothed), fill}]
// marks: [{x, id, kind, label, href}]; lines: [{y or x, label, color}]; bands: [{from, to, label}]
import { html, useEffect, useRef, useState, useMemo } from '../../vendor/preact-htm.js';
import { useCell } from '../core/cell.js';
import { theme } from '../core/prefs.js';
import { num } from '../core/format.js';
import { useWidth } from '../ui/width.js';
import { X_TICKS, X_WORDS } from './axes.js';
import { joined } from './curves.js';
import { HINT, nextPoint, nextZoom } from './keyboard.js';
import { Legend } from './legend.js';
import { Marks } from './marks.js';
import { FIXED } from './options.js';
import { plot } from './plot.js';

export function Chart(props) {
  const { series, marks, lines, bands, label, onPoint, sync, stepped, points, point, yMin } = props;
  const { options = FIXED, height = 220, xKind = 'step', legend = true, format = num, logBase = 10 } = props;
  const [host, width] = useWidth();
  const box = useRef();
  const drawn = useRef(null);
  const colours = useCell(theme);
  const [hidden, setHidden] = useState({});
  const [at, setAt] = useState(null);
  const [place, setPlace] = useState(null);
  const [lit, setLit] = useState(null);
  const { smooth, log, zoom } = options;
  const data = useMemo(() => joined(series, { smooth, log }), [series, smooth, log]);
  const names = series.map((one) => one.id + one.label + one.color).join();
  const latest = useRef();
  latest.current = data;
  useEffect(() => {
    if (!width) return undefined;
    const tick = typeof xKind === 'function' ? xKind : X_TICKS[xKind];
    const look = {
      width,
      height,
      series,
      options,
      smoothed: smooth > 0,
      hidden,
      lit,
      points,
      stepped,
      sync,
      lines,
      bands,
      yMin,
      logBase,
    };
    const on = { placed: setPlace, zoom: options.setZoom, cursor: setAt, point: onPoint };
    const u = plot(box.current, latest.current, { ...look, marked: !!marks, xTick: tick, yTick: format }, on);
    drawn.current = u;
    return () => {
      drawn.current = null;
      u.destroy();
    };
  }, [width, height, names, colours, smooth > 0, log, zoom && zoom.join(), hidden, lit, xKind, lines, bands, !marks]);
  useEffect(() => {
    if (drawn.current && drawn.current.data !== data) drawn.current.setData(data);
  }, [data]);
  const hide = (id) => setHidden((old) => ({ ...old, [id]: !old[id] }));
  const whole = useRef([-Infinity, Infinity]); // in a zoom only what is in it is here
  if (!zoom && data[0].length) whole.current = [data[0][0], data[0].at(-1)];
  const pressed = (event) => {
    const to = onPoint ? nextPoint(event.key, point, data[0].length) : nextZoom(event.key, zoom, whole.current);
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    (onPoint || options.setZoom)(to);
  };
  const kind = onPoint ? 'point' : options.setZoom ? 'zoom' : null;
  const byKeys = kind && { tabindex: 0, role: 'application', 'aria-label': `${label}: ${HINT[kind]}`, onKeyDown: pressed };
  const words = typeof xKind === 'function' ? xKind : X_WORDS[xKind];
  return html`<div class="chart" ref=${host} role="group" aria-label=${label}>
    <div ref=${box} ...${byKeys || {}} style=${{ minHeight: height + 'px' }}></div>
    ${marks && html`<${Marks} marks=${marks} place=${place} />`}
    ${
      legend &&
      html`<${Legend} series=${series} label=${label} at=${at} atWords=${words} format=${format} hidden=${hidden} hide=${hide} light=${setLit} />`
    }
  </div>`;
}
