import { html } from '../../vendor/preact-htm.js';
import { useCell } from '../core/cell.js';
import { toasts, drop } from '../data/toasts.js';
import { Button } from '../ui/button.js';

const Toast = ({ one }) => {
  const undo = () => {
    one.undo();
    drop(one.id);
  };
  return html`<div class=${'toast ' + one.kind}>
    <span class="grow">${one.text}</span>
    ${one.undo && html`<${Button} look="sm" icon="undo" onClick=${undo}>Undo<//>`}
    <${Button} look="ghost sm icon" icon="x" label="Dismiss" onClick=${() => drop(one.id)} />
    ${one.undo && html`<i class="life" style=${{ animationDuration: one.secs + 's' }}></i>`}
  </div>`;
};

export const ToastList = () =>
  html`<div class="toasts" role="status" aria-live="polite">${useCell(toasts).map((one) => html`<${Toast} key=${one.id} one=${one} />`)}</div>`;
