// What a page asks for: the answer, the failure, and a way to ask again. The last answer stays while a new one comes.
import { useState, useEffect, useRef, useCallback } from '../../vendor/preact-htm.js';
import { useCell } from '../core/cell.js';
import { denied } from './session.js';
import { getJson, mayPass } from './http.js';
import { isLive, on } from './live.js';

const PAUSE = 400; // ms: events come in bursts, one question answers many
const AGAIN = 1000; // ms between looks at a computation, should its event be lost, and before what failed is asked again

export function useResource(path, { load = getJson, watch, pause } = {}) {
  const [state, set] = useState({ path, data: null, error: null, loading: true });
  const [turn, setTurn] = useState(0);
  const refused = useCell(denied);
  useEffect(() => {
    if (!path || refused) return undefined;
    const stop = new AbortController();
    set((old) => ({ ...old, loading: true, error: null }));
    load(path, stop.signal).then(
      (data) => set({ path, data, error: null, loading: false }),
      (error) => error.name !== 'AbortError' && set((old) => ({ ...old, error, loading: false })),
    );
    return () => stop.abort();
  }, [path, turn, refused]);
  const reload = useCallback(() => setTurn((n) => n + 1), []);
  useWatch(watch, reload, pause);
  const patch = useCallback((change) => set((old) => (old.data ? { ...old, data: change(old.data) } : old)), []);
  return { ...state, reload, patch };
}

async function attempt(act, ids, pause) {
  try {
    return { left: (await act(ids)) || [], wait: pause };
  } catch (error) {
    return { left: mayPass(error) ? ids : [], wait: AGAIN };
  }
}

// Calls `act` with the ids of what changed, each once; what it gives back is for the next time, and so is all of it where
// it failed by what may pass. A page whose line is cut asks for nothing until it is back.
export function useChanged(watch, act, pause = PAUSE) {
  const latest = useRef();
  latest.current = { watch, act };
  useEffect(() => {
    const changed = new Set();
    let timer = null;
    const soon = (wait = pause) => (timer ??= setTimeout(tell, wait));
    async function tell() {
      const ids = [...changed];
      changed.clear();
      const { left, wait } = isLive() ? await attempt(latest.current.act, ids, pause) : { left: ids, wait: AGAIN };
      timer = null;
      left.forEach((id) => changed.add(id));
      if (changed.size && !ended) soon(wait);
    }
    let ended = false;
    const stop = on((event) => {
      if (!latest.current.watch(event)) return;
      changed.add(event.id);
      soon();
    });
    return () => {
      ended = true;
      clearTimeout(timer);
      stop();
    };
  }, []);
}

// Calls `act` soon after an event that `watch` accepts, once for a burst.
export function useWatch(watch, act, pause = PAUSE) {
  const latest = useRef();
  latest.current = { watch, act };
  useEffect(() => {
    if (!watch) return undefined;
    let timer = null;
    const stop = on((event) => {
      if (timer == null && latest.current.watch(event)) {
        timer = setTimeout(() => {
          timer = null;
          latest.current.act();
        }, pause);
      }
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [!watch]);
}

// The job that computes what was asked for, while it does; then the answer is asked for again.
export function useComputing({ data, reload }) {
  const job = data?.state === 'computing' ? data.job : null;
  useWatch((event) => event.type === 'job' && job && event.id === job, reload, 200);
  useEffect(() => {
    if (!job) return undefined;
    const timer = setTimeout(reload, AGAIN);
    return () => clearTimeout(timer);
  }, [data]);
  return job;
}
