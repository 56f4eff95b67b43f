// What this server serves and lets the page do; asked once, and again when something was added or removed.
import { cell } from '../core/cell.js';
import { hear } from '../core/clock.js';
import { plural } from '../core/format.js';
import { getJson } from './http.js';
import { on } from './live.js';
import { denied } from './session.js';

const NOTHING = { roots: [], keep: ['last:3'], read_only: true, why: null };
export const server = cell({ ...NOTHING, known: false });
export const closed = cell(true); // whether nothing may be changed here; a page that is drawn before that is known is drawn anew
// Buttons that could not work are not shown: neither on a read-only server nor for what lies in a plain root.
export const writable = (row) => !closed.get() && row?.writable !== false;

export const grace = () => plural(Math.round(server.get().trash_days || 0), 'day'); // how long what is removed can come back

let timer = null;
export async function learn() {
  timer = null;
  try {
    const told = await getJson('/api/meta');
    hear(told.now);
    server.set({ ...NOTHING, ...told, known: true });
    closed.set(server.get().read_only);
  } catch {
    /* each page says itself what failed */
  }
}

const soon = () => (timer ??= setTimeout(learn, 1500));
on((event) => ['checkpoint', 'damage', 'run', 'reconnected'].includes(event.type) && soon());
denied.subscribe((refused) => !refused && learn());
