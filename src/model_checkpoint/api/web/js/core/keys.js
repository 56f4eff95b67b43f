// One listener for all shortcuts. Letters never fire while typing, with a modifier, or behind a dialog.
const bound = new Map();
let prefix = null;
let timer;

export function keys(bindings) {
  for (const [key, act] of Object.entries(bindings)) bound.set(key, [...(bound.get(key) || []), act]);
  return () => {
    for (const [key, act] of Object.entries(bindings))
      bound.set(
        key,
        bound.get(key).filter((one) => one !== act),
      );
  };
}

function typing(target) {
  if (!target.tagName || !/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return false;
  return target.type !== 'checkbox' && target.type !== 'range';
}

function fire(key, event) {
  const acts = bound.get(key);
  if (!acts || !acts.length) return;
  event.preventDefault();
  acts[acts.length - 1](event);
}

addEventListener('keydown', (event) => {
  const modified = event.ctrlKey || event.metaKey;
  if (modified && event.key === 'k') {
    fire('mod+k', event);
    return;
  }
  if (modified || event.altKey || typing(event.target) || document.querySelector('dialog[open]')) return;
  clearTimeout(timer);
  if (!prefix && event.key === 'g') {
    prefix = 'g';
    timer = setTimeout(() => (prefix = null), 900);
    return;
  }
  const key = prefix ? prefix + ' ' + event.key : event.key;
  prefix = null;
  fire(key, event);
});
