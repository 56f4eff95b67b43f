// What a resume from this checkpoint gets, part by part, and what it would do without the missing ones.
import { html } from '../../../vendor/preact-htm.js';
import { bytes, plural } from '../../core/format.js';
import { Shape } from '../../ui/icons.js';
import { Panel } from '../../ui/panel.js';
import { Blank } from '../../ui/states.js';

export const lacking = (row) => row.parts.filter((one) => !one.present);

const TITLES = {
  model: 'Weights',
  optimizer: 'Optimizer',
  scheduler: 'Scheduler',
  scaler: 'Loss scaler',
  rng: 'Generators',
  data: 'Data position',
  step: 'Step',
};
const LOOKS = { bad: ['t-bad', 'bad'], missing: ['t-warn', 'warn'], fine: ['t-ok', 'ok'] };

// Of a class its own name is enough here; the module stands in the manifest.
const spoken = (has) => (has || 'saved').replace(/[\w.]+:(\w+)/, '$1');

function Part({ one, hurt }) {
  const [ink, shape] = LOOKS[hurt ? 'bad' : one.present ? 'fine' : 'missing'];
  const why = hurt ? `${plural(hurt, 'place')} cannot be read` : one.present ? spoken(one.has) : `Not saved: ${one.without}.`;
  return html`<li>
    <span class=${ink}><${Shape} kind=${shape} /></span><b>${TITLES[one.name] || one.name}</b><span class="why">${why}</span>
    <span class="muted small">${one.present ? bytes(one.bytes) : 'missing'}</span>
  </li>`;
}

// Only a run that noted its place and what its numbers hang on can say that they go on as they were.
function verdictOn({ damage, run_position: run, ...row }) {
  const missing = lacking(row).length;
  if (damage.length) return html`<span class="t-bad">not used while it is damaged</span>`;
  if (run && !run.exact) return html`<span class="t-warn">not bit for bit: ${run.reasons.join('; ')}</span>`;
  if (missing) return html`<span class="t-warn">${missing} missing${run ? '; what its run has continues bit for bit' : ''}</span>`;
  if (run) return 'complete: continues bit for bit';
  return row.parts.length ? 'every part is there' : '';
}

export function ResumeReport({ row }) {
  const { damage } = row;
  const hurts = (one) => damage.filter((spot) => (spot.tensor || '').split('.')[0] === one.name).length;
  return html`<${Panel} flush title="What a resume gets" sub=${verdictOn(row)}>
    ${
      row.parts.length
        ? html`<ul class="report">${row.parts.map((one) => html`<${Part} key=${one.name} one=${one} hurt=${hurts(one)} />`)}</ul>`
        : html`<${Blank} icon="box" title="No parts are known">Its manifest names none, or cannot be read here.<//>`
    }
  <//>`;
}
