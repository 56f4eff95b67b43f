// Work at risk of a run: while it lives it grows by the second, by the clock of the server.
import { now } from './clock.js';

export const living = (run) => ['alive', 'stalled'].includes(run.status);

export function riskSeconds(run) {
  const since = run.safe?.at ?? run.started;
  return living(run) && since != null ? Math.max(0, now() - since) : run.at_risk.seconds;
}
