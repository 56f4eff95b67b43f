// A value with subscribers. Each has its own, so a tick of one never redraws what shows another.
import { useState, useEffect } from '../../vendor/preact-htm.js';

export function cell(value) {
  const readers = new Set();
  return {
    get: () => value,
    set(next) {
      value = typeof next === 'function' ? next(value) : next;
      readers.forEach((read) => read(value));
    },
    subscribe(read) {
      readers.add(read);
      return () => readers.delete(read);
    },
  };
}

export function useCell(one) {
  const [value, set] = useState(one.get());
  useEffect(() => {
    set(one.get());
    return one.subscribe((next) => set(() => next));
  }, [one]);
  return value;
}
