import { html, useState, useEffect, useRef } from '../../vendor/preact-htm.js';
import { Button } from './button.js';

// Closes on Escape, on a click elsewhere, and when something in it was chosen.
function useDismissal(host, open, close) {
  useEffect(() => {
    if (!open) return undefined;
    const outside = (event) => host.current.contains(event.target) || close();
    const escape = (event) => {
      if (event.key !== 'Escape') return;
      close();
      host.current.querySelector('button').focus();
    };
    addEventListener('pointerdown', outside, true);
    addEventListener('keydown', escape);
    return () => {
      removeEventListener('pointerdown', outside, true);
      removeEventListener('keydown', escape);
    };
  }, [open]);
}

export function Menu({ label, icon, look = 'ghost icon', children, left, text }) {
  const [open, set] = useState(false);
  const host = useRef();
  useDismissal(host, open, () => set(false));
  const chosen = (event) => event.target.closest('button,a') && !event.target.closest('.stay') && set(false);
  return html`<span class="menu-host" ref=${host} onClick=${(event) => event.stopPropagation()}>
    <${Button} look=${look} icon=${icon} label=${text ? null : label} aria-expanded=${String(open)} onClick=${() => set(!open)}>${text}<//>
    ${open && html`<div class=${'menu' + (left ? ' left' : '')} onClick=${chosen}>${children}</div>`}
  </span>`;
}
