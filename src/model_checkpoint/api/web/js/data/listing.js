// A list that comes in pages: the first at once, the next when the reader nears the end of what is there.
import { useState, useEffect, useCallback, useRef } from '../../vendor/preact-htm.js';
import { useCell } from '../core/cell.js';
import { hear } from '../core/clock.js';
import { denied } from './session.js';
import { getJson, url } from './http.js';

const EMPTY = { first: null, rows: [], next: null, total: 0, data: null, error: null, loading: true };

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

function put(list, ids, fresh, places) {
  const asked = new Set(ids);
  const by = new Map(fresh.map((row) => [row.id, row]));
  const rows = list.rows.filter((row) => !asked.has(row.id) || by.has(row.id)).map((row) => by.get(row.id) || row);
  const here = new Set(rows.map((row) => row.id));
  fresh.forEach((row, i) => {
    if (!here.has(row.id) && (places[i] < rows.length || !list.next)) rows.splice(places[i], 0, row);
  });
  return { rows };
}

// As many rows as there were, so that asking again does not take a reader back to the top.
async function pages(first, length, signal) {
  const data = await asked(first, signal);
  while (data.next && data.rows.length < length) {
    const page = await getJson(first + '&cursor=' + encodeURIComponent(data.next), signal);
    Object.assign(data, { rows: [...data.rows, ...page.rows], next: page.next });
  }
  return data;
}

export function useListing(path, options) {
  const first = path && firstPage(path, options);
  const [state, set] = useState(EMPTY);
  const [turn, setTurn] = useState(0);
  const refused = useCell(denied);
  const busy = useRef(false);
  const shown = useRef();
  shown.current = state;
  useEffect(() => {
    if (!first || refused) return undefined;
    const stop = new AbortController();
    set((old) => ({ ...old, loading: true }));
    pages(first, shown.current.first === first ? shown.current.rows.length : 0, stop.signal).then(
      (data) => {
        if (stop.signal.aborted) return;
        hear(data.as_of);
        set({ first, rows: data.rows, next: data.next, total: totalOf(data), data, error: null, loading: false });
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
  // Those of `ids` that the list still has, as they are now: a row that is shown stays at its line or goes, a new one comes
  // where the server would have put it, unless that is behind what was fetched so far.
  const putRows = useCallback((ids, page) => {
    hear(page.as_of);
    const { rows: fresh, places, next: _, ...ofAll } = page;
    set((old) => (old.first === first ? { ...old, ...put(old, ids, fresh, places), total: totalOf(page), data: { ...old.data, ...ofAll } } : old));
  }, [first]);
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
  return { ...state, more, reload, putRows, freshen };
}
