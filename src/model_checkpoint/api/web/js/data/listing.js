// A list that comes in pages: the first at once, the next when the reader nears the end of what is there.
import { useState, useEffect, useCallback, useRef } from '../../vendor/preact-htm.js';
import { useCell } from '../core/cell.js';
import { hear } from '../core/clock.js';
import { denied } from './session.js';
import { getJson, url } from './http.js';

const EMPTY = { rows: [], next: null, total: 0, data: null, error: null, loading: true };

const sum = (counts) => Object.values(counts || {}).reduce((all, n) => all + n, 0);
export const totalOf = (page) => page.total ?? sum(page.counts);

const firstPage = (path, options) => url(path, { limit: 200, ...options });
let ahead = null; // what was asked before anything was drawn

// Asks for a list while the page that will show it is still to be drawn.
export function askAhead(path, options) {
  const first = firstPage(path, options);
  ahead = { first, answer: getJson(first) };
  ahead.answer.catch(() => {}); // told by the list
}

// When the first question has its answer, or none was asked: what else there is to ask comes behind it.
export const answered = () => ahead?.answer.catch(() => {}) ?? Promise.resolve();

function asked(first, signal) {
  const answer = ahead?.first === first ? ahead.answer : getJson(first, signal);
  ahead = null;
  return answer;
}

export function useListing(path, options) {
  const first = path && firstPage(path, options);
  const [state, set] = useState(EMPTY);
  const [turn, setTurn] = useState(0);
  const refused = useCell(denied);
  const busy = useRef(false);
  useEffect(() => {
    if (!first || refused) return undefined;
    const stop = new AbortController();
    set((old) => ({ ...old, loading: true }));
    asked(first, stop.signal).then(
      (data) => {
        if (stop.signal.aborted) return;
        hear(data.as_of);
        set({ rows: data.rows, next: data.next, total: totalOf(data), data, error: null, loading: false });
      },
      (error) => error.name !== 'AbortError' && set((old) => ({ ...old, error, loading: false })),
    );
    return () => stop.abort();
  }, [first, turn, refused]);
  const more = useCallback(() => {
    if (!state.next || busy.current) return;
    busy.current = true;
    getJson(first + '&cursor=' + encodeURIComponent(state.next))
      .then(
        (page) => set((old) => ({ ...old, rows: [...old.rows, ...page.rows], next: page.next })),
        (error) => set((old) => ({ ...old, error })),
      )
      .finally(() => (busy.current = false));
  }, [first, state.next]);
  const reload = useCallback(() => setTurn((n) => n + 1), []);
  // Some rows as they are now, and what the list says of all.
  const patchRows = useCallback((fresh, ofAll) => {
    const by = new Map(fresh.map((row) => [row.id, row]));
    set((old) => ({ ...old, rows: old.rows.map((row) => by.get(row.id) || row), data: { ...old.data, ...ofAll } }));
  }, []);
  // The newest few are fetched again, changed in place or put in front; for lists with the newest first.
  const freshen = useCallback(async () => {
    const page = await getJson(url(path, { ...options, limit: 20 })).catch(() => null);
    if (!page) return;
    set((old) => {
      const by = new Map(page.rows.map((row) => [row.id, row]));
      const kept = old.rows.map((row) => by.get(row.id) || row);
      const here = new Set(old.rows.map((row) => row.id));
      return {
        ...old,
        rows: [...page.rows.filter((row) => !here.has(row.id)), ...kept],
        total: totalOf(page),
        data: { ...old.data, counts: page.counts },
      };
    });
  }, [first]);
  return { ...state, more, reload, patchRows, freshen };
}
