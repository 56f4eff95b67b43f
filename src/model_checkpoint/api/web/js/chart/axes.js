// Ranges and ticks. uPlot snaps a log axis to whole decades, which flattens a zoomed curve: range and ticks are our own.
import { css } from './colours.js';
import { date, dur, int } from '../core/format.js';

const short = (v) => (v >= 1e6 ? +(v / 1e6).toFixed(2) + 'M' : v >= 1000 ? +(v / 1000).toFixed(1) + 'k' : String(v));
export const X_TICKS = { step: short, time: (v) => dur(v), wall: (v) => date(v).slice(5, 16) };
export const X_WORDS = { step: (v) => 'step ' + int(v), time: dur, wall: date };

function octaves(low, high) {
  const out = [];
  for (let power = Math.ceil(Math.log2(low)); 2 ** power <= high; power++) out.push(2 ** power);
  return out;
}

function evenly(low, high) {
  const raw = (high - low) / 5;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((k) => k * unit >= raw) * unit;
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high; v += step) out.push(+v.toPrecision(6));
  return out;
}

function decades(low, high) {
  const out = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    for (const k of high / low > 300 ? [1] : [1, 2, 5]) {
      const v = +(k * 10 ** power).toPrecision(6);
      if (v >= low && v <= high) out.push(v);
    }
  return out;
}

const logTicks = (base) => (u, axis, low, high) =>
  base === 2 ? octaves(low, high) : high / low < 6 ? evenly(low, high) : decades(low, high);

function logRange(base) {
  const room = base === 2 ? 1.5 : 1.04;
  return (u, low, high) => (low == null ? [1, 10] : [low / room, high * room]);
}

const plainRange = (lines, yMin) => (u, low, high) => {
  if (low == null) return [0, 1];
  for (const { y } of lines || []) {
    if (y == null) continue;
    low = Math.min(low, y);
    high = Math.max(high, y);
  }
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [yMin ?? low - room, high + room];
};

export const scales = ({ log, zoom }, { lines, yMin, logBase }) => ({
  x: { time: false, range: (u, low, high) => zoom || (low == null ? [0, 1] : low === high ? [low - 1, high + 1] : [low, high]) },
  y: { distr: log ? 3 : 1, log: logBase, range: log ? logRange(logBase) : plainRange(lines, yMin) },
});

const SIX = 6.2; // px: about one character of an 11 px font
const wide = (u, texts) => (texts ? Math.max(34, ...texts.map((text) => (text || '').length * SIX + 12)) : 40);

export function axes({ log }, { marked, width, xTick, yTick, logBase }) {
  const font = '11px ' + css('--font').split(',')[0] + ', sans-serif';
  const look = { stroke: css('--axis'), font, grid: { stroke: css('--grid'), width: 1 }, ticks: { show: false } };
  const texts = (tick) => (u, values) => values.map((v) => (v == null ? '' : tick(v)));
  return [
    { ...look, size: marked ? 42 : 26, gap: marked ? 20 : 5, space: width < 420 ? 62 : 74, values: texts(xTick) },
    {
      ...look,
      size: wide,
      space: 34,
      gap: 5,
      splits: log ? logTicks(logBase) : undefined,
      filter: log ? (u, values) => values : undefined,
      values: texts(yTick),
    },
  ];
}
