// The rules as chosen here (in the address) and what a prune by them would do. What is previewed is what goes.
import { useEffect, useState, useCallback } from '../../../vendor/preact-htm.js';
import { useCell } from '../../core/cell.js';
import { setOptions, useRoute } from '../../core/address.js';
import { mainMetric } from '../../core/metrics.js';
import { post, url } from '../../data/http.js';
import { useResource } from '../../data/resource.js';
import { server } from '../../data/server.js';

const REST = 350; // ms without a change before the server is asked

// Keeper words in force -> the fields of the form, as text; what the form has no field for stays as it is.
function fromWords(words) {
  const out = { last: '3', best: '', metric: '', every: '', rest: [] };
  for (const word of words) {
    const [kind, ...rest] = word.split(':');
    if (kind === 'last') out.last = rest[0];
    else if (kind === 'every' && /^\d+$/.test(rest[0])) out.every = rest[0];
    else if (kind === 'best' && rest.length <= 2) [out.metric, out.best] = [rest[0], rest[1] || '1'];
    else out.rest.push(word);
  }
  return out;
}

export function toWords({ last, best, metric, every, rest }) {
  const words = [`last:${Math.max(1, +last || 1)}`];
  if (metric && +best > 0) words.push(`best:${metric}:${+best}`);
  if (+every > 0) words.push(`every:${+every}`);
  return [...words, ...rest];
}

export function useRules() {
  const { keep } = useCell(server);
  const { data } = useResource(url('/api/runs', { limit: 1 }));
  const metrics = data?.metric_names || [];
  const { q } = useRoute();
  const base = fromWords(keep);
  const usual = metrics.includes(base.metric) ? base.metric : mainMetric(metrics); // what is measured here
  const metric = q.metric ?? (usual || base.metric);
  return {
    last: q.last ?? base.last,
    best: q.best ?? (base.best || '2'),
    metric,
    every: q.every ?? base.every,
    rest: base.rest,
    metrics,
    ready: !!data,
    set: setOptions,
  };
}

export function usePlan() {
  const rules = useRules();
  const { known, read_only: readOnly } = useCell(server);
  const allowed = known && !readOnly; // a plan is made by those who may carry it out
  const [state, set] = useState({ data: null, error: null, loading: true });
  const [turn, setTurn] = useState(0);
  const words = toWords(rules);
  useEffect(() => {
    if (!allowed || !rules.ready) return undefined;
    let wanted = true;
    set((old) => ({ ...old, loading: true }));
    const ask = () =>
      post('/api/retention/plan', { keep: words }).then(
        (data) => wanted && set({ data, error: null, loading: false }),
        (error) => wanted && set((old) => ({ ...old, error, loading: false })),
      );
    const timer = setTimeout(ask, state.data ? REST : 0);
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [words.join(' '), turn, allowed && rules.ready]);
  return { ...state, rules, words, again: useCallback(() => setTurn((n) => n + 1), []) };
}
