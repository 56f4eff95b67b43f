// Shown when the server wants a token this tab does not have.
import { html, useState } from '../../vendor/preact-htm.js';
import { enter } from '../data/session.js';
import { Code } from '../ui/code.js';
import { Icon } from '../ui/icons.js';

export function Gate() {
  const [text, set] = useState('');
  const submit = (event) => {
    event.preventDefault();
    if (text.trim()) enter(text.replace(/^.*#token=/, ''));
  };
  return html`<main class="gate" id="main">
    <div class="panel">
      <form class="blank" onSubmit=${submit}>
        <${Icon} name="shield" />
        <h1>This server wants its token</h1>
        <p>It printed an address that ends in <code>#token=…</code> when it started. Open that address, or paste it here. The token stays in this tab.</p>
        <div class="row">
          <input class="input grow" type="password" value=${text} aria-label="Token or address" autocomplete="off" onInput=${(event) => set(event.target.value)} autofocus />
          <button class="btn pri">Open</button>
        </div>
        <${Code} text="mckpt serve runs/" />
      </form>
    </div>
  </main>`;
}
