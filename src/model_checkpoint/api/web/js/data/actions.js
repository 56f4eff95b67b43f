// What people do to checkpoints. Each says what it did, and how to take it back.
import { post, part } from './http.js';
import { toast } from './toasts.js';
import { bytes, plural } from '../core/format.js';
import { grace } from './server.js';

export const failed = (error) => toast(error.message, { kind: 'bad', secs: 10 });

async function change(path, body, said, undo) {
  try {
    const row = await post(path, body);
    toast(said(row), { undo });
    return row;
  } catch (error) {
    failed(error);
    return null;
  }
}

export function pin(row, after, pinned = !row.pinned) {
  const told = pinned ? 'Pinned: retention will never take it.' : 'Unpinned.';
  const undo = () => pin(row, after, !pinned);
  return change(`/api/checkpoints/${part(row.id)}/pin`, { pinned }, () => told, undo).then((fresh) => fresh && after(fresh));
}

export function changeTags(row, add, remove, after) {
  const path = `/api/checkpoints/${part(row.id)}/tags`;
  const undo = () => changeTags(row, remove, add, after);
  return change(path, { add, remove }, () => 'Tags saved.', undo).then((fresh) => fresh && after(fresh));
}

export function setNote(row, text, after, before = row.note) {
  const undo = () => setNote(row, before, after, text);
  return change(`/api/checkpoints/${part(row.id)}/note`, { text }, () => 'Note saved.', undo).then(
    (fresh) => fresh && after(fresh),
  );
}

async function each(ids, verb) {
  const done = [];
  for (const id of ids) {
    try {
      done.push(await post(`/api/checkpoints/${part(id)}/${verb}`));
    } catch (error) {
      failed(error); // what went before stays done, and is told
      break;
    }
  }
  return done;
}

export async function restore(ids, after) {
  const back = await each(ids, 'restore');
  if (back.length) toast(plural(back.length, 'checkpoint') + ' restored.');
  after();
}

export async function moveToTrash(rows, after) {
  const gone = await each(
    rows.map((row) => row.id),
    'delete',
  );
  const ids = gone.map((row) => row.id);
  if (ids.length)
    tellRemoval(
      ids.length,
      gone.reduce((sum, row) => sum + row.unique, 0),
      () => restore(ids, after),
    );
  after();
}

function tellRemoval(n, frees, undo) {
  toast(`${plural(n, 'checkpoint')} moved to trash. ${bytes(frees)} becomes free in ${grace()}.`, { secs: 12, undo });
}

export async function applyPlan(planId, after) {
  try {
    const done = await post('/api/retention/apply', { plan_id: planId });
    tellRemoval(done.removed.length, done.frees, () => undoPlan(done.undo_id, after));
  } catch (error) {
    failed(error);
  }
  after();
}

async function undoPlan(undoId, after) {
  try {
    const { restored, lost } = await post('/api/retention/undo', { undo_id: undoId });
    const gone = Object.values(lost);
    toast(
      `${plural(restored.length, 'checkpoint')} restored.${gone.length ? ` ${gone.length} could not come back: ${gone[0]}` : ''}`,
      { kind: gone.length ? 'bad' : '' },
    );
  } catch (error) {
    failed(error);
  }
  after();
}
