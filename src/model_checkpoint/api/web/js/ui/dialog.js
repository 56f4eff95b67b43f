import { html, useState, useLayoutEffect, useRef } from '../../vendor/preact-htm.js';

export function Dialog({ title, onClose, children, actions, look = '' }) {
  const ref = useRef();
  useLayoutEffect(() => ref.current.showModal(), []); // before the next key, which may be meant for its field
  const backdrop = (event) => event.target === ref.current && ref.current.close();
  return html`<dialog ref=${ref} class=${look} onClose=${onClose} onClick=${backdrop} aria-label=${title}>
    ${
      look === 'palette'
        ? children
        : html`<div class="in">
          <h2>${title}</h2>
          ${children}
          <div class="acts">${actions}</div>
        </div>`
    }
  </dialog>`;
}

// Nothing destructive without saying what, how it is undone, and how the same is done on the command line.
export const Confirm = ({ title, verb, onYes, onClose, children, cli }) =>
  html`<${Dialog}
    title=${title}
    onClose=${onClose}
    actions=${html`<form method="dialog" class="row">
      <button class="btn">Cancel</button><button class="btn danger solid" onClick=${onYes}>${verb}</button>
    </form>`}
  >
    ${children}${cli && html`<p class="muted">Same as <code class="breakable" tabindex="0" role="region" aria-label="Command">${cli}</code></p>`}
  <//>`;

// Asks for one line of text.
export function Ask({ title, label, value, hint, onSave, onClose }) {
  const [text, set] = useState(value);
  return html`<${Dialog}
    title=${title}
    onClose=${onClose}
    actions=${html`<form method="dialog" class="row">
      <button class="btn">Cancel</button><button class="btn pri" onClick=${() => onSave(text)}>Save</button>
    </form>`}
  >
    <label class="field">${label}<input class="input" value=${text} onInput=${(event) => set(event.target.value)} autofocus /></label>
    ${hint && html`<p class="muted small">${hint}</p>`}
  <//>`;
}

// The dialog a page has open, if any: `open(element)`, closed by the dialog itself.
export function useDialog() {
  const [element, set] = useState(null);
  return { element, open: (make) => set(make(() => set(null))), close: () => set(null) };
}
