// Which is better, and why? Runs over each other, differences to a baseline, and only the settings that differ.
import { html, useMemo } from '../../vendor/preact-htm.js';
import { Chart } from '../chart/chart.js';
import { ChartTools, useChartOptions } from '../chart/options.js';
import { colour, dashOf } from '../chart/colours.js';
import { runLink, setOptions, useOption } from '../core/address.js';
import { agree, bytes, change, fullName, int, num, pct, plural } from '../core/format.js';
import { better } from '../core/metrics.js';
import { getJson, part } from '../data/http.js';
import { useListing } from '../data/listing.js';
import { useChanged, useResource } from '../data/resource.js';
import { useSeries } from '../data/series.js';
import { Button } from '../ui/button.js';
import { Select } from '../ui/choice.js';
import { Menu } from '../ui/menu.js';
import { Head, Panel } from '../ui/panel.js';
import { Blank, Failure, pending, Skeleton } from '../ui/states.js';
import { Badge } from '../ui/status.js';
import { progress } from './run/run_columns.js';
import { said } from './run/config.js';
import { onAxis } from './run/curves_on_axis.js';

const AT_MOST = 20;
const OFFERED = 40;
const PX = 600;

// Details carry the config; a run that is gone is left out and said.
async function loadAll(path, signal) {
  const ids = path.split(',').filter(Boolean);
  const got = await Promise.all(
    ids.map((id) =>
      getJson('/api/runs/' + part(id), signal).catch((error) => (error.kind === 'missing' ? null : Promise.reject(error))),
    ),
  );
  return { runs: got.filter(Boolean), gone: got.filter((one) => !one).length };
}

function AddRun({ ids }) {
  const list = useListing('/api/runs', { sort: '-heartbeat', limit: OFFERED });
  const add = (id) => setOptions({ runs: [...ids, id].join(',') });
  const open = list.rows.filter((run) => !ids.includes(run.id));
  return html`<${Menu} text="Add run" label="Add run" icon="compare" look="">
    ${open.map((run) => html`<button type="button" onClick=${() => add(run.id)}><${Badge} of=${run.status} bare text="" />${fullName(run)}</button>`)}
    ${open.length === 0 && html`<p class="muted small empty">All runs are here already.</p>`}
  <//>`;
}

function Delta({ value, base, metric }) {
  if (!Number.isFinite(value) || !Number.isFinite(base) || value === base || base === 0) return null;
  const good = better(metric)(value, base);
  return html`<span class=${'small ' + (good ? 't-ok' : 't-warn')}> ${value < base ? '▼' : '▲'} ${change(value, base)}</span>`;
}

const Swatch = ({ i }) => html`<i class="swatch" style=${{ background: `var(${colour(i)})` }}></i>`;

function RunHeading({ run, i, base, ids }) {
  return html`<th scope="col">
    <span class="row"><${Swatch} i=${i} /><a href=${runLink(run.id)} title=${fullName(run)}>${run.name}</a>${run === base && html`<span class="chip">baseline</span>`}
      <${Menu} label=${'Options for ' + run.name} icon="dots" look="ghost sm icon">
        <button type="button" disabled=${run === base} onClick=${() => setOptions({ base: run.id })}>Use as baseline</button>
        <button type="button" onClick=${() => setOptions({ runs: ids.filter((id) => id !== run.id).join(',') })}>Remove from the comparison</button>
      <//>
    </span>
  </th>`;
}

const Scrolling = ({ label, children }) =>
  html`<div class="scrollx" tabindex="0" role="region" aria-label=${label}><div class="tbl auto cmp"><table>${children}</table></div></div>`;

function Results({ runs, base, metric, ids }) {
  const of = (run) => run.metrics?.[metric] || {};
  const row = (name, show, delta) =>
    html`<tr><td>${name}</td>${runs.map((run) => html`<td class="mono">${show(run)}${delta && run !== base ? delta(run) : ''}</td>`)}</tr>`;
  const against = (key) => (run) => html`<${Delta} value=${of(run)[key]} base=${of(base)[key]} metric=${metric} />`;
  return html`<${Panel} flush title="Results" sub=${'differences against ' + base.name}>
    <${Scrolling} label="Results">
      <thead><tr><th scope="col">Metric</th>${runs.map((run, i) => html`<${RunHeading} key=${run.id} run=${run} i=${i} base=${base} ids=${ids} />`)}</tr></thead>
      <tbody>
        ${row('best ' + metric, (run) => num(of(run).best), against('best'))}
        ${row('at step', (run) => int(of(run).best_step))}
        ${row('last ' + metric, (run) => num(of(run).last), against('last'))}
        ${row('progress', (run) => (progress(run) == null ? 'step ' + int(run.step) : pct(progress(run))))}
        ${row('state', (run) => html`<${Badge} of=${run.status} bare />`)}
        ${row('unique bytes', (run) => bytes(run.bytes_unique))}
      </tbody>
    <//>
  <//>`;
}

export function settingsOf(runs) {
  const all = [...new Set(runs.flatMap((run) => Object.keys(run.config || {})))];
  const differing = all.filter((key) => new Set(runs.map((run) => JSON.stringify(run.config?.[key]))).size > 1);
  return { all, differing };
}

function Settings({ runs, base, whole, setWhole }) {
  const { all, differing } = settingsOf(runs);
  const keys = whole ? all : differing;
  const cell = (run, key) => {
    const value = run.config?.[key];
    const differs = JSON.stringify(value) !== JSON.stringify(base.config?.[key]);
    return html`<td class=${'mono' + (differs ? ' diff' : '')}>${value === undefined ? html`<span class="subtle">not set</span>` : said(value)}</td>`;
  };
  const end = html`<${Button} aria-pressed=${String(!whole)} onClick=${() => setWhole(whole ? '' : '1')}>Differences only<//>`;
  return html`<${Panel} flush title="Config" sub=${whole ? 'all settings' : 'only what differs'} end=${end}>
    ${
      keys.length === 0
        ? html`<${Blank} icon="check" title="Same settings">These runs have the same config. They may differ in code or data.<//>`
        : html`<${Scrolling} label="Config">
          <thead><tr><th scope="col">Setting</th>${runs.map((run, i) => html`<th scope="col"><span class="row"><${Swatch} i=${i} />${run.name}</span></th>`)}</tr></thead>
          <tbody>${keys.map((key) => html`<tr><td class="mono">${key}</td>${runs.map((run) => cell(run, key))}</tr>`)}</tbody>
        <//>`
    }
  <//>`;
}

function Curves({ runs, metric, options }) {
  const ids = runs.map((run) => run.id);
  const asked = useSeries({
    ids,
    keys: [metric],
    x: options.x,
    zoom: options.zoom,
    started: runs.map((run) => run.started || 0),
    px: PX,
  });
  const lines = useMemo(() => {
    const by = new Map(asked.series.map((one) => [one.run, one]));
    return runs
      .map((run, i) => ({ run, i, one: by.get(run.id) }))
      .filter(({ one }) => one)
      .map(({ run, i, one }) => ({
        id: run.id,
        label: fullName(run),
        x: onAxis(one.x, run.started || 0, options.x),
        min: one.min,
        max: one.max,
        last: one.last,
        color: colour(i),
        dash: dashOf(i),
      }));
  }, [asked.series, options.x]);
  if (asked.error && !asked.ready) return html`<${Failure} error=${asked.error} retry=${asked.reload} />`;
  if (!asked.ready) return html`<${Skeleton} />`;
  return html`<${Chart} label=${metric} series=${lines} options=${options} xKind=${options.x} height=${330} sync="compare" />`;
}

const Choose = ({ add, gone }) =>
  html`<div class="page">
    <${Head} title="Compare">${gone ? 'The runs in this address are gone.' : 'Nothing is compared yet: 0 runs chosen.'}<//>
    <div class="panel">
      <${Blank} icon="compare" title="Choose runs to compare" action=${add}>Select rows in <a href="#/runs">Runs</a> with <kbd>x</kbd> and press <kbd>c</kbd>, or add runs here. The address keeps the choice.<//>
    </div>
  </div>`;

function winner(runs, metric) {
  const known = runs.filter((run) => Number.isFinite(run.metrics?.[metric]?.best));
  if (!known.length) return null;
  const wins = better(metric);
  return known.reduce((best, run) => (wins(run.metrics[metric].best, best.metrics[metric].best) ? run : best));
}

export default function Compare() {
  const [text] = useOption('runs');
  const [baseId] = useOption('base');
  const [whole, setWhole] = useOption('all');
  const [wanted, setMetric] = useOption('m');
  const options = useChartOptions();
  const ids = useMemo(() => text.split(',').filter(Boolean).slice(0, AT_MOST), [text]);
  const asked = useResource(ids.length ? ids.join(',') + ',' : null, { load: loadAll, watch: (event) => event.type === 'reconnected' });
  useChanged(
    (event) => ids.includes(event.id),
    async (changed) => {
      const fresh = await loadAll(changed.join(','));
      const by = new Map(fresh.runs.map((run) => [run.id, run]));
      asked.patch((old) => ({ ...old, runs: old.runs.map((run) => by.get(run.id) || run) }));
    },
    1000,
  );
  const add = html`<${AddRun} ids=${ids} />`;
  if (!ids.length) return html`<${Choose} add=${add} />`;
  const waiting = pending(asked, { title: 'Compare' });
  if (waiting) return waiting;
  const { runs, gone } = asked.data;
  if (!runs.length) return html`<${Choose} add=${add} gone=${gone} />`;
  const shared = [...new Set(runs.flatMap((run) => run.metric_names))].sort();
  const metric = shared.includes(wanted) ? wanted : runs[0].spark_key || shared[0] || '';
  const second = shared.find((key) => /train.*loss$/.test(key) && key !== metric) || shared.find((key) => key !== metric);
  const base = runs.find((run) => run.id === baseId) || runs[0];
  const best = winner(runs, metric);
  const { all, differing } = settingsOf(runs);
  const key = runs.map((run) => run.id).join();
  return html`<div class="page">
    <${Head} title=${runs.length === 1 ? 'Compare 1 run' : `Compare ${runs.length} runs`} end=${add}>
      ${best ? `Best ${metric}: ${fullName(best)} with ${num(best.metrics[metric].best)}.` : (runs.length > 1 ? 'None of them logged a metric.' : 'It logged no metric.')}${runs.length > 1 ? ` They differ in ${differing.length} of ${plural(all.length, 'setting')}.` : ''}${gone ? ` ${gone} of the address ${agree(gone, 'is', 'are')} gone.` : ''}
    <//>
    <div class="row wrap">
      ${shared.length > 0 && html`<${Select} label="Metric" value=${metric} options=${shared.map((name) => [name, name])} onChange=${setMetric} />`}
      <${ChartTools} options=${options} />
    </div>
    ${
      metric &&
      html`<div class="grid">
      <div class=${second ? 'c8' : 'c12'}><${Panel} title=${metric}><${Curves} key=${key + metric} runs=${runs} metric=${metric} options=${options} /><//></div>
      ${second && html`<div class="c4"><${Panel} title=${second}><${Curves} key=${key + second} runs=${runs} metric=${second} options=${options} /><//></div>`}
    </div>`
    }
    ${metric && html`<${Results} runs=${runs} base=${base} metric=${metric} ids=${ids} />`}
    <${Settings} runs=${runs} base=${base} whole=${whole} setWhole=${setWhole} />
  </div>`;
}
