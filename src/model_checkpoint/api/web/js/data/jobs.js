// Work the server does in the background: what runs, how far it is, and what to do when it is done.
import { cell } from '../core/cell.js';
import { getJson, post, part } from './http.js';
import { on } from './live.js';
import { toast } from './toasts.js';
import { bytes } from '../core/format.js';
import { denied } from './session.js';

export const jobs = cell([]);
const waiting = new Map(); // job id -> what to do when it has ended
const ENDED = ['done', 'failed', 'cancelled'];
let timer = null;

export const running = (list) => list.filter((job) => ['queued', 'running'].includes(job.state));
export const shareOf = (job) => (job?.state === 'done' ? 1 : job?.total ? job.done / job.total : 0);
export const noteOf = (job) =>
  job ? job.error || [job.now, job.rate ? bytes(job.rate) + '/s' : ''].filter(Boolean).join(', ') : '';

async function look() {
  timer = null;
  try {
    const { rows } = await getJson('/api/jobs');
    jobs.set(rows);
    rows.forEach(settle);
  } catch {
    /* the page says itself what failed */
  }
  if (running(jobs.get()).length || waiting.size) soon(1000);
}

function settle(job) {
  if (!ENDED.includes(job.state) || !waiting.has(job.id)) return;
  const act = waiting.get(job.id);
  waiting.delete(job.id);
  if (job.state === 'failed') toast(`${job.title} failed: ${job.error || 'no reason was given'}`, { kind: 'bad', secs: 12 });
  act?.(job);
}

const soon = (ms = 200) => (timer ??= setTimeout(look, ms));
on((event) => ['job', 'reconnected'].includes(event.type) && soon());
denied.subscribe((refused) => !refused && soon());

// Starts a job by a POST and calls `after(job)` when it has ended; failures are told in a toast.
export async function startJob(path, after, body) {
  try {
    const job = await post(path, body);
    follow(job.id, after);
  } catch (error) {
    toast(error.message, { kind: 'bad', secs: 10 });
  }
}

export function follow(id, after) {
  waiting.set(id, after);
  soon();
}

export const watchJobs = () => soon();

export async function cancelJob(id) {
  await post(`/api/jobs/${part(id)}/cancel`).catch((error) => toast(error.message, { kind: 'bad' }));
  soon();
}
