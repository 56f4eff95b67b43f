// Server-sent events over fetch, since EventSource cannot carry the bearer token. Events say what changed, never what to.
import { cell } from '../core/cell.js';
import { getStream } from './http.js';
import { denied } from './session.js';

const FIRST_WAIT = 1000;
const LONGEST_WAIT = 15000;
const HIDDEN_GRACE = 5000; // a glance at another tab does not cut the line

export const line = cell({ state: 'connecting', since: Date.now() });
export const isLive = () => line.get().state === 'live';
const readers = new Set();
let last = null;
let stop = null;
let wait = FIRST_WAIT;
let timer = null;

export function on(read) {
  readers.add(read);
  return () => readers.delete(read);
}

// A line that was cut for long gets a `reset`: too much was missed to be told one by one.
const tell = (event) => readers.forEach((read) => read(event.type === 'reset' ? { ...event, type: 'reconnected' } : event));

// The lines of one event end with an empty line; `data` is JSON, `id` is where to go on after a cut.
export function parseEvent(block) {
  let id = null;
  const data = [];
  for (const text of block.split('\n')) {
    if (text.startsWith('id:')) id = text.slice(3).trim();
    else if (text.startsWith('data:')) data.push(text.slice(5).trimStart());
  }
  return { id, event: data.length ? JSON.parse(data.join('\n')) : null };
}

async function read(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value.replace(/\r/g, '');
    const blocks = rest.split('\n\n');
    rest = blocks.pop();
    for (const block of blocks) {
      const { id, event } = parseEvent(block);
      if (id != null) last = id;
      if (event) (event.changes || [event]).forEach(tell);
    }
  }
}

async function connect() {
  clearTimeout(timer);
  timer = null;
  stop = new AbortController();
  const mine = stop;
  try {
    const response = await getStream('/api/events', last == null ? {} : { 'Last-Event-ID': last }, mine.signal);
    const again = line.get().state === 'lost';
    line.set({ state: 'live', since: Date.now() });
    wait = FIRST_WAIT;
    if (again) tell({ type: 'reconnected' });
    await read(response);
  } catch {
    /* told below */
  }
  if (mine.signal.aborted || denied.get()) return;
  line.set((old) => ({ state: 'lost', since: old.state === 'lost' ? old.since : Date.now(), retry: wait }));
  timer = setTimeout(connect, wait);
  wait = Math.min(LONGEST_WAIT, wait * 2);
}

export function reconnect() {
  stop?.abort();
  wait = FIRST_WAIT;
  connect();
}

let hide = null;
function watchTab() {
  document.addEventListener('visibilitychange', () => {
    clearTimeout(hide);
    if (document.hidden) {
      hide = setTimeout(() => {
        clearTimeout(timer);
        stop?.abort();
        line.set({ state: 'paused', since: Date.now() });
      }, HIDDEN_GRACE);
    } else if (line.get().state === 'paused') {
      line.set({ state: 'lost', since: Date.now() });
      reconnect();
    }
  });
}

export function start() {
  watchTab();
  denied.subscribe((refused) => !refused && reconnect());
  connect();
}
