// From buckets to the lines uPlot draws: the raw line through lowest and highest, the smoothed one through the last.
import uPlot from '../../vendor/uplot.js';

const drawable = (value, log) => (Number.isFinite(value) && !(log && value <= 0) ? value : null);

// A bucket with a spike becomes two points half a column apart: the spike stays visible at any zoom.
function rawLine({ x, min, max, last }, log) {
  const xs = [];
  const ys = [];
  for (let i = 0; i < x.length; i++) {
    const wide = min && min[i] < max[i];
    const half = wide ? (i + 1 < x.length ? x[i + 1] - x[i] : i ? x[i] - x[i - 1] : 1) / 2 : 0;
    const rising = wide && last[i] - min[i] > max[i] - last[i];
    const pair = wide ? (rising ? [min[i], max[i]] : [max[i], min[i]]) : [last[i]];
    pair.forEach((value, k) => {
      xs.push(x[i] + k * half);
      ys.push(drawable(value, log));
    });
  }
  return [xs, ys];
}

// Exponential mean weighted by the distance in x. By point, a sparse series (val_loss) would be smoothed ten times harder
// than a dense one and lag beside its own data. The division takes out the bias of the first points.
export function smooth(x, y, strength) {
  const unit = (x[x.length - 1] - x[0]) / 600 || 1;
  let mean = 0;
  let weight = 0;
  let before = null;
  return Array.from(y, (value, i) => {
    if (!Number.isFinite(value)) return null;
    const keep = before == null ? strength : strength ** ((x[i] - before) / unit);
    before = x[i];
    mean = keep * mean + (1 - keep) * value;
    weight = keep * weight + (1 - keep);
    return mean / weight;
  });
}

function smoothLine(series, strength, log) {
  return [Array.from(series.x), smooth(series.x, series.last, strength).map((value) => drawable(value, log))];
}

// All lines over one x axis, as uPlot wants them: the raw ones first, then the smoothed ones if any.
export function joined(series, { smooth: strength, log }) {
  const lines = series.map((one) => rawLine(one, log));
  if (strength) series.forEach((one) => lines.push(one.plain ? [[], []] : smoothLine(one, strength, log)));
  if (lines.length === 1) return lines[0];
  return lines.length ? uPlot.join(lines) : [[], []];
}

// The last value at or before x; without x, the last of all.
export function valueAt({ x, last }, at) {
  let low = 0;
  let high = x.length;
  if (at == null) low = high;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] <= at) low = middle + 1;
    else high = middle;
  }
  return low ? last[low - 1] : null;
}

export function lowest({ min, last }) {
  let found = null;
  for (const value of min || last) if (Number.isFinite(value) && (found == null || value < found)) found = value;
  return found;
}
