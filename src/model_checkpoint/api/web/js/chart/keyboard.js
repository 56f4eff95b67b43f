// What a mouse does in a chart, by keys: zoom in, out and along, see all again, and go from point to point.
const ZOOMS = ['+', '=', '-', '0', 'ArrowLeft', 'ArrowRight'];

// The next window on `[low, high]`; null for all of it, undefined for a key that means nothing here.
export function nextZoom(key, zoom, [low, high]) {
  const [from, to] = zoom || [low, high];
  const across = to - from;
  if (!ZOOMS.includes(key) || !(high > low)) return undefined;
  if (key === '0') return null;
  if (key === '+' || key === '=') return across > 4 ? [from + across / 4, to - across / 4] : undefined;
  if (key === '-') {
    const wider = [Math.max(low, from - across / 2), Math.min(high, to + across / 2)];
    return zoom && wider[1] - wider[0] < high - low ? wider : null;
  }
  if (!zoom) return undefined;
  const by = key === 'ArrowLeft' ? -Math.min(across / 4, from - low) : Math.min(across / 4, high - to);
  return [from + by, to + by];
}

export const nextPoint = (key, at, count) =>
  ({ ArrowLeft: Math.max(0, at - 1), ArrowRight: Math.min(count - 1, at + 1), Home: 0, End: count - 1 })[key];

export const HINT = { zoom: 'plus and minus zoom, arrows move, 0 shows all', point: 'arrows go from point to point' };
