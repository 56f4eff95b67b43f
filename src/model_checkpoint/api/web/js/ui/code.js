import { html } from '../../vendor/preact-htm.js';
import { Button } from './button.js';
import { toast } from '../data/toasts.js';

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast('Copied.', { secs: 2 });
  } catch {
    toast('This browser lets pages copy only over https or on this machine. Select the text instead.', { secs: 6 });
  }
}

export const Code = ({ text }) =>
  html`<div class="codewrap">
    <pre class="code" tabindex="0" aria-label="Code">${text}</pre>
    <${Button} look="sm icon" icon="copy" label="Copy" onClick=${() => copy(text)} />
  </div>`;
