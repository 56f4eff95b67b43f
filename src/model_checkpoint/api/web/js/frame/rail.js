import { html } from '../../vendor/preact-htm.js';
import { useCell } from '../core/cell.js';
import { int } from '../core/format.js';
import { server } from '../data/server.js';
import { Icon, Logo, Shape } from '../ui/icons.js';
import { NAV } from './pages.js';

function Count({ page, told: { runs, checkpoints, damaged } }) {
  if (page === 'integrity' && damaged > 0)
    return html`<span class="count bad" title=${damaged + ' damaged'}><${Shape} kind="bad" />${int(damaged)}</span>`;
  const n = { runs, checkpoints }[page];
  return n != null && html`<span class="count">${int(n)}</span>`;
}

const folder = (root) => root.replace(/\/+$/, '').split('/').pop() || root;

export function Rail({ section }) {
  const told = useCell(server);
  const { roots, catalog, version, read_only: readOnly, known } = told;
  return html`<aside class="rail" aria-label="Navigation">
    <a class="brand" href="#/runs"><${Logo} /><span>model_checkpoint</span></a>
    <nav aria-label="Pages">
      ${NAV.map((item) =>
        item
          ? html`<a href=${'#/' + item[0]} aria-current=${section === item[0] ? 'page' : null} title=${`${item[1]}  (g ${item[3]})`}>
              <${Icon} name=${item[2]} /><span>${item[1]}</span><${Count} page=${item[0]} told=${told} />
            </a>`
          : html`<div class="group"></div>`,
      )}
    </nav>
    ${
      known &&
      html`<footer>
      <div>${roots.length === 1 ? '1 root' : roots.length + ' roots'}, ${catalog ? 'catalog in ' + catalog : 'no catalog'}</div>
      <div class="mono ell" title=${roots.join('\n')}>${roots.map(folder).join('  ')}</div>
      <div>v${version} · ${readOnly ? 'read only' : 'read and write'}</div>
    </footer>`
    }
  </aside>`;
}
