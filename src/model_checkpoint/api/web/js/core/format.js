// All numbers people read go through here, so that a byte count looks the same everywhere.
import { now } from './clock.js';

const THIN = '\u202f'; // thin space: cannot be taken for a decimal comma
const FIXED = '\u00a0';

export const int = (n) => (n == null ? '' : Math.round(n).toLocaleString('en').replace(/,/g, THIN));

export function bytes(n) {
  if (n == null) return '';
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let i = 0;
  while (Math.abs(n) >= 999.5 && i < units.length - 1) {
    n /= 1000;
    i++;
  }
  return (i ? n.toPrecision(3) : Math.round(n)) + FIXED + units[i];
}

export function num(value, digits = 4) {
  if (value == null) return '';
  if (typeof value === 'string') return value.replace('Infinity', 'Inf'); // JSON has no NaN: the server says it in words
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? 'Inf' : '-Inf';
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(2).replace('e+', 'e');
  return String(+value.toPrecision(digits));
}

export function dur(s) {
  if (s == null) return '';
  if (s <= 0) return '0 s';
  if (s < 0.9995) return Math.round(s * 1000) + ' ms';
  if (s < 59.5) return (s < 9.95 ? s.toFixed(1) : Math.round(s)) + ' s';
  if (s < 3570) return Math.round(s / 60) + ' min';
  const minutes = Math.round(s / 60);
  if (minutes < 48 * 60) return Math.floor(minutes / 60) + ' h ' + (minutes % 60) + ' min';
  return (s / 86400 < 9.95 ? (s / 86400).toFixed(1) : Math.round(s / 86400)) + ' d';
}

export function ago(at) {
  if (at == null) return 'never';
  const s = now() - at;
  if (s < 5) return 'now';
  if (s < 59.5) return Math.round(s) + ' s ago';
  if (s < 3570) return Math.round(s / 60) + ' min ago';
  if (s < 36 * 3600) return Math.round(s / 3600) + ' h ago';
  return Math.round(s / 86400) + ' d ago';
}

export const date = (at) => new Date(at * 1000).toISOString().slice(0, 16).replace('T', ' ');
export const pct = (share, digits = 0) => (share * 100).toFixed(digits) + FIXED + '%';
// A change against what it was; one that is no longer told by hundredths is told by how many times.
export const change = (value, base) => {
  const part = Math.abs((value - base) / base);
  return part < 10 ? pct(part, 1) : `${num(Math.abs(value / base), 3)}\u00d7`;
};
export const shape = (sizes) => (sizes.length ? sizes.join('\u00d7') : 'scalar');
export const plural = (n, word) => `${int(n)} ${word}${n === 1 ? '' : 's'}`;
export const agree = (n, one, many) => (n === 1 ? one : many); // of a verb
export const fullName = (row) => (row.experiment ? row.experiment + '/' : '') + (row.run_name || row.name);
export const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
export const quantile = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * q))];
