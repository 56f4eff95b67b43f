// Status by shape, word and colour. The meaning is the tooltip.
import { html } from '../../vendor/preact-htm.js';
import { Shape } from './icons.js';

// word -> [style, shape, what it means]
export const STATUS = {
  healthy: ['ok', 'ok', 'Every byte matched its digest when last verified.'],
  unverified: ['unv', 'unv', 'Committed, but not read back yet.'],
  damaged: ['bad', 'bad', 'At least one file does not match its digest.'],
  missing: ['bad', 'dead', 'Recorded, but its files are gone.'],
  unreadable: ['unv', 'unv', 'Its store cannot be read here and now, so nobody knows.'],
  saving: ['busy', 'busy', 'Being written. Not a checkpoint until it is committed.'],
  pinned: ['pin', 'pin', 'Never removed by retention.'],
  alive: ['ok', 'live', 'The process beats and the training moves.'],
  stalled: ['warn', 'warn', 'The process beats, but the training does not move.'],
  dead: ['bad', 'dead', 'No heartbeat, and no end was recorded.'],
  failed: ['bad', 'bad', 'Ended with an error.'],
  finished: ['idle', 'idle', 'Said itself that it is finished.'],
  stopped: ['idle', 'stop', 'Stopped by a person.'],
  unknown: ['idle', 'stop', 'Checkpoints without a tracker: nobody says how the run is.'],
};
const UNKNOWN = ['unv', 'unv', 'This page does not know this word.'];

export function Badge({ of, text, bare, title }) {
  const [style, shape, meaning] = STATUS[of] || UNKNOWN;
  return html`<span class=${`badge st-${style}${bare ? ' bare' : ''}`} title=${title || meaning}>
    <${Shape} kind=${shape} />${text ?? of}
  </span>`;
}
