// What this browser remembers: theme and columns. Storage can throw (private mode), then nothing is remembered.
import { cell } from './cell.js';

export const prefs = {
  get(key, otherwise) {
    try {
      const kept = localStorage.getItem('mc.' + key);
      return kept == null ? otherwise : JSON.parse(kept);
    } catch {
      return otherwise;
    }
  },
  set(key, value) {
    try {
      localStorage.setItem('mc.' + key, JSON.stringify(value));
    } catch {
      /* nothing is remembered */
    }
  },
};

export const theme = cell(document.documentElement.dataset.theme);

export function flipTheme() {
  const next = theme.get() === 'dark' ? 'light' : 'dark';
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem('mc.theme', next); // as plain text: early.js reads it
  } catch {
    /* nothing is remembered */
  }
  theme.set(next);
}
