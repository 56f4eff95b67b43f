import { html } from '../../../vendor/preact-htm.js';
import { plural } from '../../core/format.js';
import { Panel } from '../../ui/panel.js';
import { Blank } from '../../ui/states.js';

export const said = (value) => (typeof value === 'object' && value !== null ? JSON.stringify(value) : String(value));

export function Config({ run }) {
  const settings = Object.entries(run.config || {});
  if (!settings.length)
    return html`<div class="panel"><${Blank} icon="note" title="No settings were logged" code=${'ExperimentTracker("a", config={"lr": 3e-4})'}>Give them to the tracker at the start; comparisons then show what differs.<//></div>`;
  return html`<${Panel} title="Config" sub=${plural(settings.length, 'setting') + ', as logged at the start'}>
    <dl class="kv mono">
      ${settings.map(([key, value]) => html`<dt>${key}</dt><dd>${said(value)}</dd>`)}
    </dl>
  <//>`;
}
