// What did saving cost me? One row per save; only the hatched part held up training.
import { html, useMemo, useState } from '../../vendor/preact-htm.js';
import { Chart } from '../chart/chart.js';
import { checkpointLink } from '../core/address.js';
import { ago, bytes, dur, int, median, pct, plural, quantile } from '../core/format.js';
import { now } from '../core/clock.js';
import { part } from '../data/http.js';
import { useResource } from '../data/resource.js';
import { Key, Panel, Stat } from '../ui/panel.js';
import { Shape } from '../ui/icons.js';
import { Blank, Failure, Skeleton } from '../ui/states.js';

const KINDS = {
  stall: 'Stall (training waits)',
  staging: 'Staging copy',
  writing: 'Writing',
  checking: 'Checking',
  hooks: 'Hooks',
};
const TICKS = [0, 0.25, 0.5, 0.75, 1];
const OUTLIER = 4; // times the median
const look = (kind) => `k-${kind}${kind === 'stall' ? ' pat' : ''}`;
const sum = (list, of) => list.reduce((total, one) => total + (of(one) || 0), 0);
const share = (v) => v * 100 + '%';
export const stallOf = (save) =>
  sum(
    save.segments.filter((one) => one.kind === 'stall'),
    (one) => one.dur,
  );
// Seconds until the bytes were durable; nothing of a save that nobody timed.
const safeAfter = (save) => save.segments.filter((one) => one.kind === 'writing').map((one) => one.from + one.dur);
const medianOf = (list) => (list.length ? dur(median(list)) : '–');

const timed = (rows) => rows.filter((save) => save.segments.length);

export function inOneSentence(rows) {
  const saves = timed(rows);
  if (!saves.length) return 'No save was timed yet.';
  const stalls = saves.map(stallOf);
  const worst = saves.reduce((most, one) => (stallOf(one) > stallOf(most) ? one : most));
  return `A save holds training up for ${dur(median(stalls))} (median of ${saves.length}); the worst took ${dur(stallOf(worst))} at step ${int(worst.step)}.`;
}

function Figures({ saves, run }) {
  const stalls = saves.map(stallOf);
  const spent = (run.ended || now()) - run.started;
  return html`<dl class="stats">
    <${Stat} label="Median stall" value=${dur(median(stalls))} note=${`p95 ${dur(quantile(stalls, 0.95))}, worst ${dur(Math.max(...stalls))}`} />
    <${Stat} label="Share of training time" value=${spent > 0 ? pct(sum(stalls, (s) => s) / spent, 2) : '–'} note=${`over the last ${plural(saves.length, 'save')}`} />
    <${Stat} label="Safe after" value=${medianOf(saves.flatMap(safeAfter))} note="median, from the call until its bytes are durable" />
    <${Stat} label="Written" value=${bytes(sum(saves, (one) => one.written))} note=${`of ${bytes(sum(saves, (one) => one.bytes))}; the rest was linked`} />
  </dl>`;
}

function Waterfall({ saves, on, setOn }) {
  const end = Math.max(...saves.flatMap((save) => save.segments.map((one) => one.from + one.dur)), 1e-6);
  const usual = median(saves.map(stallOf));
  const bar = (one) =>
    html`<i class=${look(one.kind)} title=${`${KINDS[one.kind]}: ${dur(one.dur)}`} style=${{ left: share(one.from / end), width: `max(3px, ${share(one.dur / end)})` }}></i>`;
  const row = (save, i) =>
    html`<button type="button" key=${save.checkpoint} class=${'r' + (i === on ? ' on' : '')} aria-pressed=${String(i === on)} onClick=${() => setOn(i)}>
      <span class="mono">${int(save.step)}</span>
      <span class="lane" role="img" aria-label=${save.segments
        .map((one) => `${one.kind} ${dur(one.dur)}`)
        .join(', ')}>${save.segments.map(bar)}</span>
      <span class=${'num' + (stallOf(save) > usual * OUTLIER ? ' t-warn strong' : '')}>${dur(stallOf(save))}</span>
      <span class="num muted">${bytes(save.written)}</span>
    </button>`;
  return html`<div class="wf">
    <div class="r hd">
      <span>Step</span>
      <span class="lane">${TICKS.map((at) => html`<span class="tick" style=${{ left: share(at) }}>${at ? dur(end * at) : '0'}</span>`)}</span>
      <span class="num">Stall</span><span class="num">Written</span>
    </div>
    ${saves.map(row)}
  </div>`;
}

const Hook = ({ hook }) =>
  html`<li class="hook">
    <span class=${hook.ok ? 't-ok' : 't-warn'}><${Shape} kind=${hook.ok ? 'ok' : 'warn'} /></span>
    <span class="ell" title=${hook.error || ''}><b>${hook.name}</b><span class="small muted"> ${String(hook.priority).toLowerCase()}${hook.ok ? '' : ', ' + (hook.error || hook.outcome || 'failed') + '; the save went on'}</span></span>
    <span class="mono small">${dur(hook.ms / 1000)}</span>
  </li>`;

// Hooks run before the bytes are written and after; which of them it was is where it stands.
const partOf = (save, one) =>
  one.kind !== 'hooks' ? KINDS[one.kind] : one.from < Math.max(...safeAfter(save)) ? 'Hooks before' : 'Hooks after';

const OneSave = ({ save }) =>
  html`<${Panel} title=${'Step ' + int(save.step)} sub=${ago(save.at)}>
      <dl class="kv">${save.segments.map((one) => html`<dt><${Key} look=${'k-' + one.kind}>${partOf(save, one)}<//></dt><dd class="num mono">${dur(one.dur)}</dd>`)}</dl>
      <p class="after"><a href=${checkpointLink(save.checkpoint)}>Open the checkpoint</a></p>
    <//>
    <${Panel} flush title="Hooks on this save">
      ${save.hooks.length ? html`<ul class="report">${save.hooks.map((hook) => html`<${Hook} hook=${hook} />`)}</ul>` : html`<p class="muted pad">No hook ran.</p>`}
    <//>`;

function Timeline({ saves, run }) {
  const [on, setOn] = useState(0);
  const series = useMemo(() => {
    const old = [...saves].reverse();
    return [{ id: 'stall', label: 'stall', x: old.map((one) => one.step), last: old.map(stallOf), color: '--c2', plain: true }];
  }, [saves]);
  return html`<div class="stack">
    <${Figures} saves=${saves} run=${run} />
    <div class="grid">
      <div class="c8">
        <${Panel} flush title="Saves" sub="newest first">
          <div class="keys pad">${Object.entries(KINDS).map(([kind, text]) => html`<${Key} look=${look(kind)}>${text}<//>`)}</div>
          <${Waterfall} saves=${saves} on=${on} setOn=${setOn} />
        <//>
      </div>
      <div class="c4 stack">
        <${OneSave} save=${saves[Math.min(on, saves.length - 1)]} />
        <${Panel} title="Stall per save"><${Chart} label="Stall per save" series=${series} height=${130} format=${dur} legend=${false} yMin=${0} points /><//>
      </div>
    </div>
  </div>`;
}

export const useSaves = (id) =>
  useResource(id && `/api/runs/${part(id)}/saves`, {
    watch: (event) => event.type === 'checkpoint' && event.id === id,
    pause: 1000,
  });

export function SaveTimeline({ run, asked }) {
  const own = useSaves(asked ? null : run.id);
  const { data, error, reload } = asked || own;
  if (error && !data) return html`<div class="panel"><${Failure} error=${error} retry=${reload} /></div>`;
  if (!data) return html`<div class="panel"><${Skeleton} /></div>`;
  const saves = timed(data.rows);
  if (!saves.length)
    return html`<div class="panel"><${Blank} icon="clock" title="No save was timed">Saves made through the manager, or by <code>mc.Run</code> with <code>catalog=</code>, leave their times in the catalog; the first shows up here as soon as it is committed.<//></div>`;
  return html`<${Timeline} saves=${saves} run=${run} />`;
}
