// Once a second, for what grows by itself: ages and work at risk. Who shows such a figure draws it again, nobody else.
import { cell, useCell } from './cell.js';

const tick = cell(0);
setInterval(() => tick.set((n) => n + 1), 1000);

export const useTick = () => useCell(tick);
