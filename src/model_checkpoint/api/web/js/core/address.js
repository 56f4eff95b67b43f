// The address is the state: page, filter, sort, zoom and chart options live in the fragment, so every view is a link.
import { useState, useEffect } from '../../vendor/preact-htm.js';

function read() {
  const [path, options] = location.hash.replace(/^#/, '').split('?');
  const clean = path && path.startsWith('/') ? path : '/runs';
  return {
    path: clean,
    parts: clean.split('/').filter(Boolean).map(decode),
    q: Object.fromEntries(new URLSearchParams(options || '')),
  };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a lone percent sign, typed by hand
  }
}

let route = read();
const readers = new Set();
const tell = () => readers.forEach((one) => one(route));
addEventListener('hashchange', () => {
  route = read();
  tell();
});

export const here = () => route;

export function useRoute() {
  const [now, set] = useState(route);
  useEffect(() => {
    readers.add(set);
    set(route);
    return () => readers.delete(set);
  }, []);
  return now;
}

export function href(path, options = {}) {
  const given = Object.entries(options).filter(([, value]) => value != null && value !== '');
  const text = new URLSearchParams(given).toString();
  return '#' + path + (text ? '?' + text : '');
}

export const runLink = (id, tab) => href('/run/' + encodeURIComponent(id) + (tab ? '/' + tab : ''));
export const checkpointLink = (id, options) => href('/checkpoint/' + encodeURIComponent(id), options);
export const go = (link) => {
  location.hash = link;
};

// Options replace the entry of the history: "back" leaves the page, it does not undo a slider.
export function setOptions(patch) {
  history.replaceState(null, '', href(route.path, { ...route.q, ...patch }));
  route = read();
  tell();
}

export function useOption(key, otherwise = '') {
  const now = useRoute();
  return [now.q[key] ?? otherwise, (value) => setOptions({ [key]: value === otherwise ? null : value })];
}
