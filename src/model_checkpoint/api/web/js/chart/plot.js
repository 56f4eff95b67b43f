// One uPlot, made from what is to be seen. It is made anew when that changes, and told only the data when they grow.
import uPlot from '../../vendor/uplot.js';
import { axes, scales } from './axes.js';
import { css, fade, DASHES } from './colours.js';
import { overlay } from './overlays.js';

function lineOf(one, { faint, hidden, lit, dimmed, points, stepped }) {
  const ink = css(one.color || '--c1');
  return {
    label: one.label,
    stroke: faint ? fade(ink, 0.22) : ink,
    width: faint ? 1 : lit ? 2.4 : 1.6,
    dash: faint ? [] : DASHES[one.dash || 0],
    spanGaps: !one.gaps,
    show: !hidden,
    alpha: dimmed ? 0.25 : 1,
    points: { show: points || undefined, size: points ? 7 : 4, fill: ink },
    paths: stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
    fill: one.fill ? fade(ink, 0.1) : undefined,
  };
}

function lines(series, { smoothed, hidden, lit, points, stepped }) {
  const one = (faint) => (item, i) =>
    lineOf(item, {
      faint: faint && !item.plain,
      hidden: hidden[item.id],
      lit: lit === i,
      dimmed: lit != null && lit !== i,
      points,
      stepped,
    });
  return [{}, ...series.map(one(smoothed)), ...(smoothed ? series.map(one(false)) : [])];
}

export function plot(host, data, look, on) {
  const { width, height, series, options } = look;
  const place = (u) => {
    const { offsetLeft, offsetTop, offsetHeight, offsetWidth } = u.over;
    const { min, max } = u.scales.x;
    setTimeout(() => on.placed({ left: offsetLeft, top: offsetTop + offsetHeight, width: offsetWidth, min, max }), 0);
  };
  const dragged = (u) => {
    const { left, width: across } = u.select;
    if (across > 8) on.zoom?.([u.posToVal(left, 'x'), u.posToVal(left + across, 'x')]);
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  };
  const u = new uPlot(
    {
      width,
      height,
      pxAlign: 1,
      legend: { show: false },
      padding: [8, 12, 0, 0],
      cursor: {
        sync: look.sync ? { key: look.sync } : undefined,
        drag: { x: true, y: false, setScale: false },
        points: { size: 6 },
        y: false,
      },
      scales: scales(options, look),
      axes: axes(options, look),
      series: lines(series, look),
      hooks: {
        setSelect: [dragged],
        setCursor: [() => on.cursor(u.cursor.idx == null ? null : u.data[0][u.cursor.idx])],
        draw: [overlay(look.bands, look.lines)],
        ready: [place],
        setScale: [(self, key) => key === 'x' && place(self)],
      },
    },
    data,
    host,
  );
  u.over.addEventListener('dblclick', () => on.zoom?.(null));
  u.over.addEventListener('click', () => u.cursor.idx != null && on.point?.(u.cursor.idx));
  return u;
}
