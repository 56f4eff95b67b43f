// What does the memory plan cost, and what does it keep? The curve of plans nobody beats, and the one in force.
import { html, useMemo, useState } from '../../../vendor/preact-htm.js';
import { Chart } from '../../chart/chart.js';
import { bytes, pct } from '../../core/format.js';
import { part } from '../../data/http.js';
import { useResource } from '../../data/resource.js';
import { Key, Panel, Stat } from '../../ui/panel.js';
import { Failure, Skeleton } from '../../ui/states.js';

const HOW = { keep: '--c1', recompute: '--c5', drop: '--c4', offload: '--c6' };
const amount = (v) => (typeof v === 'number' ? bytes(v) : v);
const percents = (v) => (v == null ? '' : Math.round(v * 10) / 10 + ' %');
const sum = (list, of) => list.reduce((total, one) => total + (of(one) || 0), 0);

const Stage = ({ stage, widest }) =>
  html`<li class=${stage.how}>
    <span class="ell" title=${stage.name}>${stage.name}</span><span class="muted">${stage.how}</span>
    <span class="track" style=${{ width: (stage.act / widest) * 100 + '%' }} title=${bytes(stage.act)}><i></i></span>
    <span class="num muted">${stage.ms.toFixed(1)} ms</span>
  </li>`;

function Plan({ plan }) {
  const [picked, setPicked] = useState(null);
  const chosen = plan.pts[plan.chosen] || { bytes: plan.peak, slow: 0 };
  const points = useMemo(() => [...plan.pts].sort((a, b) => a.bytes - b.bytes), [plan]);
  const series = useMemo(
    () => [
      {
        id: 'plans',
        label: 'cheapest plan for each budget',
        x: points.map((p) => p.bytes),
        last: points.map((p) => p.slow * 100),
        color: '--c1',
        plain: true,
      },
    ],
    [points],
  );
  const rules = useMemo(() => {
    const budget = plan.budget ? [{ x: plan.budget, label: 'budget ' + bytes(plan.budget), color: '--bad' }] : [];
    return [...budget, { x: chosen.bytes, label: '', color: '--c3' }];
  }, [plan]);
  const shown = picked == null ? chosen : points[picked];
  const widest = Math.max(...plan.stages.map((stage) => stage.act), 1);
  return html`<div class="stack">
    <dl class="stats">
      <${Stat} label="Planned peak" value=${bytes(plan.peak)} note=${'budget ' + bytes(plan.budget)} />
      <${Stat} label="Slower by" value=${pct(chosen.slow, 1)} note="against keeping everything" />
      <${Stat} label="Without a plan" value=${bytes(plan.plain)} note=${plan.plain > plan.budget ? 'would not fit the budget' : 'would fit too'} />
      <${Stat} label="Floor" value=${bytes(plan.floor)} note="no plan fits below this" />
    </dl>
    <div class="grid">
      <div class="c5">
        <${Panel} title="Memory against time" sub="each point is a plan nobody beats">
          <${Chart} label="Memory against time" series=${series} xKind=${amount} height=${300} lines=${rules} format=${percents} points legend=${false} yMin=${0} point=${picked ?? Math.max(0, points.indexOf(chosen))} onPoint=${setPicked} />
          <p class="small muted">${picked == null ? 'Chosen plan' : 'This plan'}: ${bytes(shown.bytes)} peak for ${pct(shown.slow, 1)} more time. Click a point to look at another, or go along with the arrow keys; put it in force with <code class="breakable">auto_checkpoint(model, ${shown.bytes}, sample)</code>.</p>
        <//>
      </div>
      <div class="c7">
        <${Panel} title="What happens to each stage" sub=${`${bytes(
          sum(
            plan.stages.filter((s) => s.how === 'keep'),
            (s) => s.act,
          ),
        )} of ${bytes(sum(plan.stages, (s) => s.act))} activations are kept`}>
          <div class="keys">${Object.entries(HOW).map(([how, ink]) => html`<${Key} colour=${ink}>${how}<//>`)}<span class="small muted">bar: bytes of activations, filled where they are kept; figure: time of the forward pass</span></div>
          <ul class="stages">${plan.stages.map((stage) => html`<${Stage} stage=${stage} widest=${widest} />`)}</ul>
        <//>
      </div>
    </div>
  </div>`;
}

export function MemoryPlan({ run }) {
  const { data, error, reload } = useResource(`/api/runs/${part(run.id)}/memory-plan`);
  if (error && !data) return html`<div class="panel"><${Failure} error=${error} retry=${reload} /></div>`;
  return data ? html`<${Plan} plan=${data} />` : html`<div class="panel"><${Skeleton} /></div>`;
}
