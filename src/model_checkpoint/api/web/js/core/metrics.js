// What this page reads into names of metrics, as the library does: which one stands for a run, and which way is better.
const FIRST = ['val_loss', 'eval_loss', 'loss', 'train_loss'];

export const mainMetric = (names) => FIRST.find((name) => names.includes(name)) || names[0] || null;
export const falls = (name) => /(loss|error|perplexity)$/i.test(name || '');
export const better = (name) => (falls(name) ? (a, b) => a < b : (a, b) => a > b);

// The metric that stands for a checkpoint, and its value.
export function metricOf(row) {
  const name = mainMetric(Object.keys(row.metrics || {}));
  return { name, value: name ? row.metrics[name] : null };
}
