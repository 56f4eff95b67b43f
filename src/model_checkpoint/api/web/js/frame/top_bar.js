import { html } from '../../vendor/preact-htm.js';
import { useCell } from '../core/cell.js';
import { theme, flipTheme } from '../core/prefs.js';
import { line, reconnect } from '../data/live.js';
import { Button } from '../ui/button.js';
import { Icon } from '../ui/icons.js';
import { Crumbs } from './crumbs.js';
import { JobMenu } from './job_menu.js';

const WORDS = { live: 'Live', connecting: 'Connecting', lost: 'Not live', paused: 'Paused' };

function Line() {
  const { state } = useCell(line);
  if (state === 'live' || state === 'connecting')
    return html`<span class=${'live ' + state} title="Server-sent events"><i></i><span>${WORDS[state]}</span></span>`;
  return html`<button type="button" class="live off" title="Live updates stopped. Click to try now." onClick=${reconnect}><i></i><span>${WORDS[state]}</span></button>`;
}

export function TopBar({ section, openRail, openPalette, openHelp }) {
  const dark = useCell(theme) === 'dark';
  return html`<header class="bar">
    <${Button} look="ghost icon menubtn" icon="menu" label="Navigation" onClick=${openRail} />
    <${Crumbs} section=${section} /><${Line} />
    <button type="button" class="searchbtn" onClick=${openPalette} aria-keyshortcuts="Control+K">
      <${Icon} name="search" /><span class="lbl">Search or jump to</span> <kbd>Ctrl K</kbd>
    </button>
    <${JobMenu} />
    <${Button} look="ghost icon" icon=${dark ? 'sun' : 'moon'} label=${dark ? 'Light theme (d)' : 'Dark theme (d)'} onClick=${flipTheme} />
    <${Button} look="ghost icon" icon="help" label="Keyboard shortcuts (?)" onClick=${openHelp} />
  </header>`;
}
