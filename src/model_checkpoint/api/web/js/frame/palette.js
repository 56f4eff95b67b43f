// Global search. Plain words jump to what is called so; anything with an operator is a query on runs.
import { html, useState, useEffect, useMemo, useRef } from '../../vendor/preact-htm.js';
import { go, href, runLink, checkpointLink } from '../core/address.js';
import { flipTheme } from '../core/prefs.js';
import { int, fullName, plural } from '../core/format.js';
import { getJson, part, url } from '../data/http.js';
import { totalOf } from '../data/listing.js';
import { Dialog } from '../ui/dialog.js';
import { Icon } from '../ui/icons.js';
import { Badge } from '../ui/status.js';
import { NAV } from './pages.js';

const REST = 120; // ms
const ID = /^[0-9a-f][0-9a-f-]{7,}$/i; // a checkpoint is found by its id
const isQuery = (text) => /[<>=:]/.test(text);
const quiet = (promise) => promise.catch((error) => ({ rows: [], failed: error }));

async function find(text, signal) {
  const word = text.trim();
  const query = !word || isQuery(word) ? word : `"${word.replaceAll('"', '')}"`;
  const [runs, checkpoints] = await Promise.all([
    quiet(getJson(url('/api/runs', { q: query, limit: 7 }), signal)),
    ID.test(word) ? quiet(getJson('/api/checkpoints/' + part(word), signal)) : { rows: [] },
  ]);
  return { text, runs, checkpoints: checkpoints.rows || [checkpoints] };
}

const runItem = (run) => ({
  text: fullName(run),
  end: html`<${Badge} of=${run.status} bare />`,
  icon: 'runs',
  act: () => go(runLink(run.id)),
});
const checkpointItem = (one) => ({
  text: `${one.id}  ${fullName(one)}`,
  end: 'step ' + int(one.step),
  icon: 'box',
  act: () => go(checkpointLink(one.id)),
});

function queryItem(text, runs) {
  if (runs.failed) return { text: runs.failed.message, end: '', icon: 'search', dead: true };
  return {
    text: `Show runs where ${text}`,
    end: plural(totalOf(runs), 'run'),
    icon: 'search',
    act: () => go(href('/runs', { q: text })),
  };
}

function itemsFor(text, found) {
  const groups = [];
  const word = text.trim().toLowerCase();
  if (isQuery(text)) groups.push(['Query', [queryItem(text, found.runs)]]);
  else {
    groups.push([word ? 'Runs' : 'Recent runs', found.runs.rows.slice(0, word ? 7 : 4).map(runItem)]);
    groups.push(['Checkpoints', found.checkpoints.map(checkpointItem)]);
  }
  const pages = NAV.filter((one) => one && one[1].toLowerCase().includes(word)).map(([key, title, icon, letter]) => ({
    text: title,
    end: html`<kbd>g</kbd> <kbd>${letter}</kbd>`,
    icon,
    act: () => go('#/' + key),
  }));
  if ('switch theme'.includes(word)) pages.push({ text: 'Switch theme', end: html`<kbd>d</kbd>`, icon: 'moon', act: flipTheme });
  groups.push(['Pages', pages]);
  return groups.flatMap(([head, items]) => items.map((item, i) => (i ? item : { ...item, head })));
}

function useFound(text) {
  const [found, set] = useState({ text: '', runs: { rows: [], total: 0 }, checkpoints: [] });
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(() => find(text, stop.signal).then((one) => !stop.signal.aborted && set(one)), text ? REST : 0);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text]);
  return found;
}

export function Palette({ onClose }) {
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const list = useRef();
  const found = useFound(text);
  const items = useMemo(() => itemsFor(text, found), [text, found]);
  const choose = (item) => {
    if (!item || item.dead) return;
    onClose();
    item.act();
  };
  const pressed = (event) => {
    const by = { ArrowDown: 1, ArrowUp: items.length - 1 }[event.key];
    if (by != null && items.length) {
      event.preventDefault();
      setAt((n) => (n + by) % items.length);
      requestAnimationFrame(() => list.current?.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' }));
    }
    if (event.key === 'Enter') {
      event.preventDefault();
      choose(items[at]);
    }
  };
  const typed = (event) => {
    setText(event.target.value);
    setAt(0);
  };
  return html`<${Dialog} title="Search" look="palette" onClose=${onClose}>
    <div class="q">
      <${Icon} name="search" />
      <input
        value=${text}
        placeholder="Run, id of a checkpoint, page, or a query"
        aria-label="Search"
        role="combobox"
        aria-expanded="true"
        aria-controls="pal"
        aria-activedescendant=${items.length ? 'pal' + at : null}
        onInput=${typed}
        onKeyDown=${pressed}
        autofocus
      />
      <kbd>Esc</kbd>
    </div>
    <div class="list" id="pal" role="listbox" aria-label="Results" ref=${list}>
      ${items.map(
        (item, i) =>
          html`${item.head && html`<div class="head" role="presentation">${item.head}</div>`}
            <div class="it" role="option" id=${'pal' + i} aria-selected=${String(i === at)} onMouseMove=${() => setAt(i)} onClick=${() => choose(item)}>
              <${Icon} name=${item.icon} /><span class="ell">${item.text}</span><span class="r">${item.end}</span>
            </div>`,
      )}
      ${items.length === 0 && html`<p class="muted none" role="option" aria-selected="false" aria-disabled="true">Nothing is called that. Try a part of a run's name, the id of a checkpoint, or a query.</p>`}
    </div>
    <div class="foot"><span>Query: <code>${'val_loss < 2.8 tag:paper'}</code></span><span><code>${'lr >= 1e-3 -status:failed'}</code></span></div>
  <//>`;
}
