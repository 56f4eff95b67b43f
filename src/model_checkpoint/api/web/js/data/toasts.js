// Short words about what just happened, with a way back where there is one.
import { cell } from '../core/cell.js';

export const toasts = cell([]);
let count = 0;

export function toast(text, { undo, kind = '', secs = 6 } = {}) {
  const id = ++count;
  toasts.set((list) => [...list.slice(-3), { id, text, undo, kind, secs }]);
  setTimeout(() => drop(id), secs * 1000);
  return id;
}

export const drop = (id) => toasts.set((list) => list.filter((one) => one.id !== id));
