// The frame around every page: rail, top bar, routing, shortcuts, toasts.
import { html, useState, useEffect, useErrorBoundary } from '../../vendor/preact-htm.js';
import { useRoute, go } from '../core/address.js';
import { useCell } from '../core/cell.js';
import { keys } from '../core/keys.js';
import { flipTheme } from '../core/prefs.js';
import { denied } from '../data/session.js';
import { line, reconnect } from '../data/live.js';
import { closed } from '../data/server.js';
import { dur } from '../core/format.js';
import { Button } from '../ui/button.js';
import { Shape } from '../ui/icons.js';
import { Blank, Skeleton } from '../ui/states.js';
import { Gate } from './gate.js';
import { Help } from './help.js';
import { NAV, SECTION, exists, load, page } from './pages.js';
import { Palette } from './palette.js';
import { Rail } from './rail.js';
import { ToastList } from './toast_list.js';
import { TopBar } from './top_bar.js';

const Alone = ({ children }) => html`<div class="page"><div class="panel">${children}</div></div>`;

function Page({ route }) {
  const name = route.parts[0];
  const [, redraw] = useState(0);
  const [lost, setLost] = useState(null);
  const [bug, forget] = useErrorBoundary((error) => console.error(error));
  const Shown = page(name);
  useCell(closed); // which buttons there are
  useEffect(() => {
    if (exists(name) && !Shown) load(name).then(() => redraw((n) => n + 1), setLost); // it may have come meanwhile
  }, [name]);
  useEffect(() => forget(), [route.path]);
  if (bug)
    return html`<${Alone}><${Blank} icon="wrench" title="This page hit a bug" action=${html`<${Button} onClick=${forget}>Try again<//>`}>
      ${String(bug.message)}. The rest of the dashboard still works, and nothing was changed.
    <//><//>`;
  if (!exists(name))
    return html`<${Alone}><${Blank} icon="search" title="No such page" action=${html`<a class="btn" href="#/runs">Go to Runs</a>`}>
      The address <code>${route.path}</code> leads nowhere.
    <//><//>`;
  if (lost && !Shown)
    return html`<${Alone}><${Blank} icon="bolt" title="The page did not come" action=${html`<a class="btn" href="" onClick=${() => location.reload()}>Load again</a>`}>
      The server does not answer. It may have been stopped.
    <//><//>`;
  return Shown ? html`<${Shown} key=${route.parts.slice(0, 2).join('/')} route=${route} />` : html`<${Alone}><${Skeleton} /><//>`;
}

const LONG = 5000; // ms without the line before it is worth a word
function LineNote() {
  const { state, since, retry } = useCell(line);
  const [, redraw] = useState(0);
  useEffect(() => {
    if (state !== 'lost') return undefined;
    const timer = setInterval(() => redraw((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, [state]);
  const away = Date.now() - since;
  if (state !== 'lost' || away < LONG) return null;
  return html`<div class="note-bar warn offline" role="alert">
    <${Shape} kind="warn" />
    <span class="grow">Live updates stopped ${dur(away / 1000)} ago; what you see is from then. Trying again every ${dur((retry || LONG) / 1000)}.</span>
    <${Button} look="sm" onClick=${reconnect}>Now<//>
  </div>`;
}

function useShortcuts(openPalette, openHelp) {
  useEffect(() => {
    const search = () => {
      const field = document.querySelector('.query input');
      if (field) field.focus();
      else openPalette();
    };
    const jumps = NAV.filter(Boolean).map(([key, , , letter]) => ['g ' + letter, () => go('#/' + key)]);
    return keys({ 'mod+k': openPalette, '/': search, '?': openHelp, d: flipTheme, ...Object.fromEntries(jumps) });
  }, []);
}

export function Shell() {
  const route = useRoute();
  const refused = useCell(denied);
  const [rail, setRail] = useState(false);
  const [palette, setPalette] = useState(false);
  const [help, setHelp] = useState(false);
  useEffect(() => {
    setRail(false);
    document.querySelector('.main')?.scrollTo(0, 0);
  }, [route.path]);
  useShortcuts(
    () => setPalette(true),
    () => setHelp(true),
  );
  if (refused) return html`<${Gate} />`;
  const section = SECTION[route.parts[0]] || route.parts[0];
  const skip = (event) => {
    event.preventDefault();
    document.querySelector('.main').focus();
  };
  return html`<div class=${'shell' + (rail ? ' open' : '')}>
    <a class="skip" href="#main" onClick=${skip}>Skip to content</a>
    <${Rail} section=${section} />
    ${rail && html`<button type="button" class="scrim" aria-label="Close navigation" onClick=${() => setRail(false)}></button>`}
    <${TopBar} section=${section} openRail=${() => setRail(!rail)} openPalette=${() => setPalette(true)} openHelp=${() => setHelp(true)} />
    <main class="main" id="main" tabindex="-1"><${LineNote} /><${Page} route=${route} /></main>
    <${ToastList} />
    ${palette && html`<${Palette} onClose=${() => setPalette(false)} />`}${help && html`<${Help} onClose=${() => setHelp(false)} />`}
  </div>`;
}
