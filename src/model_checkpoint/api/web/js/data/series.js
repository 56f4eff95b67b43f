// Curves as buckets, one per pixel column: x, lowest, highest and last value in it, as raw numbers.
import { useEffect, useRef, useState } from '../../vendor/preact-htm.js';
import { getBinary, mayPass, url } from './http.js';
import { on } from './live.js';
import { useResource } from './resource.js';

const PAUSE = 300; // ms: events come in bursts
const AGAIN = 1000; // ms before what failed is asked again
const MAGIC = 'MCS1';

export function parseSeries(buffer) {
  const view = new DataView(buffer);
  const text = (from, length) => new TextDecoder().decode(new Uint8Array(buffer, from, length));
  if (text(0, 4) !== MAGIC) throw new Error('The server sent curves in a form this page does not know.');
  const length = view.getUint32(4, true);
  const header = JSON.parse(text(8, length));
  let at = 8 + length;
  const column = (n) => {
    const numbers = new Float64Array(buffer, at, n);
    at += n * 8;
    return numbers;
  };
  return header.series.map(({ run, key, n }) => ({ run, key, x: column(n), min: column(n), max: column(n), last: column(n) }));
}

const load = async (path, signal) => parseSeries(await getBinary(path, signal));

// Of a time the server knows the clock only. "Run time" counts from each run's own beginning, so a zoom into it asks for
// the range that holds it in every run.
const ask = ({ ids, keys, x, zoom, since, px, started = [0] }) =>
  url('/api/runs/series', {
    ids: ids.join(','),
    keys: keys.join(','),
    x: x === 'step' ? 'step' : 'time',
    from: zoom ? zoom[0] + (x === 'time' ? Math.min(...started) : 0) : null,
    to: zoom ? zoom[1] + (x === 'time' ? Math.max(...started) : 0) : null,
    since,
    px,
  });

const join = (a, b) => {
  const out = new Float64Array(a.length + b.length);
  out.set(a);
  out.set(b, a.length);
  return out;
};

// Behind the last x that is here comes what is new.
function extend(one, tail) {
  const end = one.x.at(-1) ?? -Infinity;
  const from = tail.x.findIndex((x) => x > end);
  if (from < 0) return one;
  const column = (name) => join(one[name], tail[name].subarray(from));
  return { ...one, x: column('x'), min: column('min'), max: column('max'), last: column('last') };
}

async function fetchTail(question, run, since) {
  const came = await load(ask({ ...question, ids: [run], since }));
  return new Map(came.map((one) => [one.key, one]));
}

// Tails pile up; more than two columns a pixel are joined by twos, as the server would have done.
function thin(one, px) {
  if (one.x.length <= 2 * px) return one;
  const n = Math.ceil(one.x.length / 2);
  const pick = (of) => Float64Array.from({ length: n }, (_, i) => of(2 * i, Math.min(2 * i + 1, one.x.length - 1)));
  const either = (better, list) =>
    pick((a, b) => (Number.isNaN(list[a]) ? list[b] : Number.isNaN(list[b]) ? list[a] : better(list[a], list[b])));
  return {
    ...one,
    x: pick((_, b) => one.x[b]),
    min: either(Math.min, one.min),
    max: either(Math.max, one.max),
    last: pick((_, b) => one.last[b]),
  };
}

// The curves of some runs. New points are fetched as a tail and put behind what is there, never all again.
export function useSeries(question) {
  const whole = question.ids.length && question.keys.length ? ask(question) : null;
  const asked = useResource(whole, { load });
  const [shown, set] = useState(null);
  const latest = useRef();
  latest.current = { question, asked };
  useEffect(() => {
    if (asked.data) set(asked.data);
  }, [asked.data]);
  useEffect(() => {
    const since = new Map(); // run -> first step that is new
    let timer = null;
    const putDown = (run, from, wait = PAUSE) => {
      const before = since.has(run) ? since.get(run) : from;
      since.set(run, before == null || from == null ? null : Math.min(before, from));
      timer ??= setTimeout(fetchThem, wait);
    };
    // What could not be asked for is asked for again, else the curve would have a gap.
    const putBack = (run, from) => (error) => {
      if (mayPass(error)) putDown(run, from, AGAIN);
      return null;
    };
    const fetchThem = async () => {
      timer = null;
      const { question: now, asked: first } = latest.current;
      const wanted = [...since];
      since.clear();
      if (now.zoom) return; // a zoom into the past does not grow
      if (wanted.some(([, from]) => from == null)) {
        first.reload(); // points came below what is here
        return;
      }
      for (const [run, from] of wanted) {
        const came = await fetchTail(now, run, from).catch(putBack(run, from));
        if (came && latest.current.question.x === now.x)
          set(
            (old) =>
              old && old.map((one) => (one.run === run && came.has(one.key) ? thin(extend(one, came.get(one.key)), now.px) : one)),
          );
      }
    };
    const stop = on((event) => {
      if (event.type === 'reconnected') latest.current.asked.reload();
      if (event.type !== 'points' || !latest.current.question.ids.includes(event.id)) return;
      putDown(event.id, event.since);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, []);
  return { series: shown || [], ready: shown != null, error: asked.error, reload: asked.reload };
}
