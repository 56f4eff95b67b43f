// Eight hues in a fixed order; every fourth line gets a new dash, so that no two lines look alike.
export const colour = (i) => `--c${(i % 8) + 1}`;
export const dashOf = (i) => Math.floor(i / 4) % 4;
export const DASHES = [[], [6, 3], [2, 3], [9, 3, 2, 3]];
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const fade = (hex, alpha) =>
  hex +
  Math.round(alpha * 255)
    .toString(16)
    .padStart(2, '0');
