// Did 16 bits hold? The scale over time, skipped steps as marks, fallbacks to FP32 as bands.
import { html, useMemo } from '../../../vendor/preact-htm.js';
import { Chart } from '../../chart/chart.js';
import { useChartOptions } from '../../chart/options.js';
import { checkpointLink, runLink } from '../../core/address.js';
import { int, num, pct } from '../../core/format.js';
import { part } from '../../data/http.js';
import { useResource } from '../../data/resource.js';
import { Table } from '../../table/table.js';
import { Button } from '../../ui/button.js';
import { Panel, Stat } from '../../ui/panel.js';
import { Blank, Failure, Skeleton } from '../../ui/states.js';

const WORDS = { backed_off: 'overflow', at_floor: 'overflow at the floor', bad_loss: 'bad loss' };
const COLUMNS = [
  {
    key: 'step',
    label: 'Step',
    width: 90,
    prio: 0,
    fixed: true,
    render: (one) => html`<span class="mono">${int(one.step)}</span>`,
  },
  {
    key: 'event',
    label: 'What',
    width: 160,
    prio: 0,
    render: (one) => html`<span class=${one.event === 'bad_loss' ? 't-bad strong' : ''}>${WORDS[one.event] || one.event}</span>`,
  },
  {
    key: 'detail',
    label: 'Detail',
    width: 200,
    grow: true,
    prio: 2,
    render: (one) => html`<span class="mono">${one.detail || ''}</span>`,
  },
  {
    key: 'scale',
    label: 'Scale after',
    width: 110,
    num: true,
    prio: 1,
    render: (one) => html`<span class="mono">${num(one.scale)}</span>`,
  },
];
const powers = (v) => (v == null ? '' : v >= 1024 ? Math.round(v / 1024) + 'k' : String(Math.round(v)));

// Stretches in which FP32 took over, from the event that began each to the one that ended it.
function fallbacks(told) {
  const out = [];
  for (const { step, event } of told.events) {
    if (/fallback|to_fp32/.test(event)) out.push({ from: step, to: told.x[told.x.length - 1] ?? step });
    else if (/resumed|back_to|recover/.test(event) && out.length) out[out.length - 1].to = step;
  }
  return out;
}

function Scale({ run, told }) {
  const options = useChartOptions();
  const fixed = useMemo(() => ({ ...options, log: true, smooth: 0 }), [options.zoom]);
  const series = useMemo(
    () => [
      {
        id: 'scale',
        label: 'loss scale',
        x: told.x,
        last: told.y.map((v) => (typeof v === 'number' ? v : null)),
        color: '--c6',
        gaps: true,
        plain: true,
      },
    ],
    [told],
  );
  const bands = useMemo(() => fallbacks(told).map(({ from, to }) => ({ from, to, label: 'fp32 fallback' })), [told]);
  const marks = useMemo(
    () =>
      told.skipped.map((one) => ({
        x: one.step,
        id: one.step + one.event,
        kind: one.event === 'bad_loss' ? 'bad' : '',
        href: runLink(run.id, 'lossscale'),
        label: `Step ${int(one.step)} skipped: ${WORDS[one.event] || one.event}`,
      })),
    [told],
  );
  const known = told.y.filter((v) => typeof v === 'number');
  const fallen = bands.reduce((sum, { from, to }) => sum + to - from, 0);
  const last = told.x[told.x.length - 1];
  return html`<div class="stack">
    <dl class="stats">
      <${Stat} label="Scale now" value=${known.length ? int(known[known.length - 1]) : '–'} note=${known.length ? `lowest ${int(Math.min(...known))}` : ''} />
      <${Stat} label="Skipped steps" value=${int(told.skipped.length)} note=${last ? pct(told.skipped.length / last, 3) + ' of all; none was applied' : 'none was applied'} />
      <${Stat} label="Fallback" value=${int(fallen)} unit="steps" note=${fallen ? 'ran in fp32' : 'never needed'} />
      <${Stat} label="Known until" value=${int(told.step)} note=${html`<a href=${checkpointLink(told.checkpoint)}>the checkpoint that tells</a>`} />
    </dl>
    <${Panel} title="Loss scale" sub="powers of two; triangles are skipped steps, diamonds a bad loss" end=${options.zoom && html`<${Button} look="sm" onClick=${() => options.setZoom(null)}>Reset zoom<//>`}>
      <${Chart} label="Loss scale" series=${series} options=${fixed} height=${260} logBase=${2} stepped bands=${bands} marks=${marks} legend=${false} format=${powers} />
    <//>
    <${Panel} flush title="Skipped steps" sub="newest first">
      <${Table} label="Skipped steps" rows=${told.skipped} rowKey=${(one) => one.step + one.event} columns=${COLUMNS} sub=${(one) => `scale ${num(one.scale)} ${one.detail || ''}`}
        empty=${html`<${Blank} icon="check" title="No step was skipped">Every gradient was finite.<//>`} />
    <//>
  </div>`;
}

export function LossScale({ run }) {
  const { data, error, reload } = useResource(`/api/runs/${part(run.id)}/loss-scale`, {
    watch: (event) => event.type === 'points' && event.id === run.id,
    pause: 2000,
  });
  if (error && !data) return html`<div class="panel"><${Failure} error=${error} retry=${reload} /></div>`;
  return data ? html`<${Scale} run=${run} told=${data} />` : html`<div class="panel"><${Skeleton} /></div>`;
}
