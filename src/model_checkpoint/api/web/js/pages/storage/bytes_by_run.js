import { html, useState } from '../../../vendor/preact-htm.js';
import { runLink } from '../../core/address.js';
import { bytes, fullName } from '../../core/format.js';
import { Button } from '../../ui/button.js';
import { Panel } from '../../ui/panel.js';
import { Blank } from '../../ui/states.js';

const AT_FIRST = 9;

export function Bytes({ runs }) {
  const [all, setAll] = useState(false);
  const widest = Math.max(...runs.map((run) => run.unique + run.shared), 1);
  const share = (n) => ({ width: (n / widest) * 100 + '%' });
  const bar = (run) =>
    html`<li key=${run.id}>
      <a class="ell" href=${runLink(run.id)} title=${fullName(run)}>${fullName(run)}</a>
      <span class="track" title=${`${bytes(run.unique)} unique, ${bytes(run.shared)} shared`}><i style=${share(run.unique)}></i>${run.shared > 0 && html`<i class="sh" style=${share(run.shared)}></i>`}</span>
      <span class="num muted small">${bytes(run.unique)}</span>
    </li>`;
  const more =
    runs.length > AT_FIRST &&
    html`<${Button} look="sm" onClick=${() => setAll(!all)}>${all ? 'Fewer' : 'All ' + runs.length}<//>`;
  return html`<${Panel} title="Bytes by run" sub="unique and shared" end=${more}>
    ${runs.length ? html`<ul class="hbars">${runs.slice(0, all ? runs.length : AT_FIRST).map(bar)}</ul>` : html`<${Blank} icon="disk" title="Nothing is stored">No run has saved a checkpoint yet.<//>`}
  <//>`;
}
