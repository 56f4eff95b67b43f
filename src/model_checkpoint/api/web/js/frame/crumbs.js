// Where the reader is. A page says it once it knows the names; until then the title of its section stands there.
import { html, useEffect } from '../../vendor/preact-htm.js';
import { cell, useCell } from '../core/cell.js';
import { NAV } from './pages.js';

const crumbs = cell(null);

export function useCrumbs(list) {
  useEffect(() => {
    if (!list) return undefined;
    crumbs.set(list);
    document.title = list[list.length - 1][0] + ' · model_checkpoint';
    return () => crumbs.set(null);
  }, [JSON.stringify(list)]);
}

const titleOf = (section) => NAV.find((one) => one && one[0] === section)?.[1] ?? 'model_checkpoint';

export function Crumbs({ section }) {
  const told = useCell(crumbs);
  const list = told || [[titleOf(section)]];
  useEffect(() => {
    if (!told) document.title = titleOf(section) + ' · model_checkpoint';
  }, [section, told]);
  return html`<nav class="grow" aria-label="You are here">
    <ol class="crumbs">
      ${list.map(([text, link]) => html`<li>${link ? html`<a href=${link}>${text}</a>` : html`<span aria-current="page">${text}</span>`}</li>`)}
    </ol>
  </nav>`;
}
