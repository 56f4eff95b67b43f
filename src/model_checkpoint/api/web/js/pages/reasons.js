// Why a checkpoint is kept: the rules that claim it, or the word that none does.
import { html } from '../../vendor/preact-htm.js';

const SHOWN = 2;
export const Rule = ({ text }) => html`<span class=${'rule' + (text === 'pinned' ? ' pin' : '')}>${text}</span>`;

export function Reasons({ of: { reasons = [] } }) {
  if (!reasons.length) return html`<span class="rule none" title="The next prune by the rules of its run would move it to trash">no rule</span>`;
  return html`<span class="row rules" title=${reasons.map(({ rule, why }) => `${rule}: ${why}`).join('\n')}>
    ${reasons.slice(0, SHOWN).map(({ rule }) => html`<${Rule} text=${rule} />`)}
    ${reasons.length > SHOWN && html`<span class="subtle small">+${reasons.length - SHOWN}</span>`}
  </span>`;
}
