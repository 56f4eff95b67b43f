// The curves of one run: the losses together and large, every other metric in a chart of its own.
import { html, useMemo, useState } from '../../../vendor/preact-htm.js';
import { Chart } from '../../chart/chart.js';
import { ChartTools, useChartOptions } from '../../chart/options.js';
import { colour } from '../../chart/colours.js';
import { useSeries } from '../../data/series.js';
import { Button } from '../../ui/button.js';
import { Blank, Failure, Skeleton } from '../../ui/states.js';
import { onAxis, marksOf } from './curves_on_axis.js';

const TITLES = {
  lr: 'Learning rate',
  learning_rate: 'Learning rate',
  grad_norm: 'Gradient norm',
  samples_per_s: 'Samples per second',
};
const PLAIN = ['lr', 'learning_rate']; // smoothing a schedule would only bend it
const AT_FIRST = 9;
const WIDE_PX = 900;
const SMALL_PX = 400;

function grouped(run) {
  const all = run.metric_names || [];
  const losses = all.filter((key) => /loss$/.test(key)).slice(0, 8);
  const main = losses.length ? losses : all.filter((key) => key === run.spark_key);
  return { main, rest: all.filter((key) => !main.includes(key)) };
}

const lineOf = (one, i, run, kind) => ({
  id: one.key,
  label: one.key,
  x: onAxis(one.x, run.started || 0, kind),
  min: one.min,
  max: one.max,
  last: one.last,
  color: colour(i),
  plain: PLAIN.includes(one.key),
});

const ChartPanel = ({ title, wide, ...rest }) =>
  html`<section class=${'panel' + (wide ? ' wide' : '')}>
    <header><h2>${title}</h2></header>
    <div class="body"><${Chart} label=${title} ...${rest} /></div>
  </section>`;

export function Charts({ run, checkpoints }) {
  const options = useChartOptions();
  const [more, setMore] = useState(false);
  const { main, rest } = useMemo(() => grouped(run), [run.metric_names?.join()]);
  const shown = more ? rest : rest.slice(0, AT_FIRST);
  const question = { ids: [run.id], x: options.x, zoom: options.zoom, started: [run.started || 0] };
  const large = useSeries({ ...question, keys: main, px: WIDE_PX });
  const small = useSeries({ ...question, keys: shown, px: SMALL_PX });
  const marks = useMemo(() => marksOf(checkpoints, run, options.x), [checkpoints, options.x, run.started]);
  const lines = useMemo(() => large.series.map((one, i) => lineOf(one, i, run, options.x)), [large.series]);
  const others = useMemo(
    () => small.series.map((one, i) => [lineOf(one, i + lines.length, run, options.x)]),
    [small.series, lines.length],
  );
  if (!run.metric_names?.length)
    return html`<div class="panel"><${Blank} icon="runs" title="No metric was logged" code=${'tracker.log_metrics({"loss": loss}, step=step)'}>Curves show up here with the first point.<//></div>`;
  if (large.error && !large.ready)
    return html`<div class="panel"><${Failure} error=${large.error} retry=${large.reload} /></div>`;
  if (!large.ready) return html`<div class="panel"><${Skeleton} /></div>`;
  const common = { options, xKind: options.x, sync: 'run' };
  return html`<div class="stack">
    <div class="row wrap">
      <${ChartTools} options=${options} />
      ${!options.zoom && html`<span class="small muted grow hint-end">Drag to zoom, double-click to reset. Triangles are checkpoints, the star is the best one.</span>`}
    </div>
    <div class="charts">
      <${ChartPanel} title=${main.length > 1 ? 'Loss' : main[0]} wide series=${lines} marks=${marks} height=${innerWidth < 720 ? 240 : 300} ...${common} />
      ${others.map((one) => html`<${ChartPanel} key=${one[0].id} title=${TITLES[one[0].id] || one[0].id} series=${one} height=${170} ...${common} />`)}
    </div>
    ${rest.length > AT_FIRST && html`<div class="centred"><${Button} onClick=${() => setMore(!more)}>${more ? 'Show fewer' : `Show the other ${rest.length - AT_FIRST} metrics`}<//></div>`}
  </div>`;
}
