// What moved most between two checkpoints? Ranked bars, the first one open.
import { html, useEffect, useMemo, useState } from '../../vendor/preact-htm.js';
import { setOptions, useOption } from '../core/address.js';
import { ago, bytes, fullName, int, num, pct, plural, shape } from '../core/format.js';
import { metricOf } from '../core/metrics.js';
import { part, url } from '../data/http.js';
import { useListing } from '../data/listing.js';
import { useComputing, useResource } from '../data/resource.js';
import { useCrumbs } from '../frame/crumbs.js';
import { Button } from '../ui/button.js';
import { Select } from '../ui/choice.js';
import { Histogram } from '../ui/drawings.js';
import { Icon } from '../ui/icons.js';
import { Head, Key, Meter, Stat } from '../ui/panel.js';
import { Blank, Computing, pending } from '../ui/states.js';
import { Badge } from '../ui/status.js';

const CRUMBS = [['Checkpoints', '#/checkpoints'], ['Diff']];
const AT_FIRST = 18;
const RANKS = [
  ['rel', 'relative change'],
  ['max_abs', 'largest single change'],
  ['name', 'name'],
];
const count = (one) => one.shape.reduce((all, n) => all * n, 1);
const finite = (value) => (Number.isFinite(value) ? value : 0);

// How far in words: what is spoiled has no distance, and from zero there is no share.
function howFar(one) {
  if (one.spoiled) return `${int(one.spoiled)} NaN/Inf`;
  if (one.rel === 'Infinity') return 'from zero';
  if (!Number.isFinite(one.rel)) return '–';
  return one.rel === 0 && one.changed === 0 ? 'same' : pct(one.rel, 1);
}

function Side({ row, which, others, pair }) {
  const options = others.some((one) => one.id === row.id) ? others : [row, ...others];
  const text = (one) => `step ${int(one.step)}, ${ago(one.at)}${one.run === row.run ? '' : ', ' + fullName(one)}`;
  return html`<div class=${'side ' + which}>
    <${Select} bare label=${which === 'a' ? 'From' : 'To'} value=${row.id} options=${options.map((one) => [one.id, text(one)])} onChange=${(id) => setOptions({ ...pair, [which]: id })} />
    <div class="small muted after">${metricOf(row).name && html`${metricOf(row).name} <b class="mono">${num(metricOf(row).value)}</b> · `}${bytes(row.bytes)} · <${Badge} of=${row.health} bare /></div>
  </div>`;
}

function Choice({ a, b }) {
  const list = useListing('/api/checkpoints', { run: b.run, sort: '-step' });
  const others = list.rows.filter((one) => one.health !== 'saving');
  const pair = { a: a.id, b: b.id };
  return html`<section class="panel">
    <div class="body ab">
      <${Side} row=${a} which="a" others=${others} pair=${pair} />
      <${Button} icon="swap" onClick=${() => setOptions({ a: b.id, b: a.id })}>Swap<//>
      <${Side} row=${b} which="b" others=${others} pair=${pair} />
    </div>
  </section>`;
}

function Details({ one, a, b }) {
  return html`<div class="det">
    <div>
      <div class="small muted">Values before and after</div>
      <${Histogram} before=${one.hist_a} after=${one.hist_b} width=${260} height=${64} label="Histograms before and after" />
      <div class="keys"><${Key} colour="--c1">step ${int(a.step)}<//><${Key} colour="--c2">step ${int(b.step)}<//></div>
    </div>
    <dl class="kv small">
      ${one.shape && html`<dt>Shape</dt><dd class="mono">${shape(one.shape)} ${one.dtype}</dd>`}
      ${one.rel != null && html`<dt>${one.spoiled ? 'Norm of what is finite' : 'Norm'}</dt><dd class="mono">${num(one.norm_a)} to ${num(one.norm_b)}</dd>`}
      <dt>Elements changed</dt><dd>${int(one.changed)} of ${int(count(one))}</dd>
      ${one.spoiled > 0 && html`<dt>Not finite any more</dt><dd>${int(one.spoiled)} of ${int(count(one))}</dd>`}
      ${one.cos != null && html`<dt>Cosine</dt><dd class="mono">${num(one.cos, 5)}</dd>`}
    </dl>
  </div>`;
}

function Moved({ one, i, most, a, b }) {
  const [open, setOpen] = useState(i === 0);
  const wild = one.spoiled > 0 || one.rel === 'Infinity'; // further than any bar can show
  const look = one.spoiled ? 'bad' : one.rel === 0 ? 'idle' : '';
  return html`<li>
    <details open=${open} onToggle=${(event) => setOpen(event.target.open)}>
      <summary>
        <span class="subtle h-s">${i + 1}</span><span class="mono ell" title=${one.name}>${one.name}</span>
        <span><${Meter} share=${wild ? 1 : finite(one.rel) / most} look=${look} label=${one.name + ' moved'} /></span>
        <span class="num mono h-s">${Number.isFinite(one.cos) ? one.cos.toFixed(3) : ''}</span><span class="num mono muted h-s">${num(one.max_abs, 2)}</span>
        <span class=${'num mono strong' + (one.spoiled ? ' t-bad' : '')}>${howFar(one)}</span><span class="h-s subtle"><${Icon} name="chev" small /></span>
      </summary>
      ${open && html`<${Details} one=${one} a=${a} b=${b} />`}
    </details>
  </li>`;
}

function Ranked({ data, by, setBy }) {
  const [more, setMore] = useState(false);
  const rows = useMemo(
    () => (by === 'name' ? [...data.rows].sort((x, y) => (x.name < y.name ? -1 : 1)) : data.rows), // ranked by the server
    [data, by],
  );
  const most = Math.max(...data.rows.map((one) => finite(one.rel))) || 1;
  if (!rows.length)
    return html`<div class="panel"><${Blank} icon="check" title="No tensor is in both">They share no tensor name, so there is nothing to rank.<//></div>`;
  return html`<section class="panel">
    <header><h2>Tensors</h2><div class="end"><${Select} label="Rank by" value=${by} options=${RANKS} onChange=${setBy} /></div></header>
    <div class="moved"><div class="head"><span class="h-s">#</span><span>Tensor</span><span>Change / norm</span><span class="num h-s">Cosine</span><span class="num h-s">Max |Δ|</span><span class="num">Relative</span><span class="h-s"></span></div></div>
    <ol class="moved">${rows.slice(0, more ? 400 : AT_FIRST).map((one, i) => html`<${Moved} key=${one.name} one=${one} i=${i} most=${most} a=${data.a} b=${data.b} />`)}</ol>
    ${!more && rows.length > AT_FIRST && html`<div class="body centred"><${Button} onClick=${() => setMore(true)}>Show the other ${int(Math.min(400, rows.length) - AT_FIRST)}<//></div>`}
  </section>`;
}

function Figures({ data }) {
  const { a, b, summary, added, removed } = data;
  const [before, after] = [metricOf(a).value, metricOf(b).value];
  const metric =
    Number.isFinite(before) && Number.isFinite(after)
      ? `${metricOf(b).name} ${after < before ? 'fell' : 'rose'} by ${num(Math.abs(after - before), 3)}`
      : 'no metric in both';
  return html`<dl class="stats">
    <${Stat} label="Steps between" value=${int(Math.abs(b.step - a.step))} note=${metric} />
    <${Stat} label="Whole model moved" value=${Number.isFinite(summary.moved) ? pct(summary.moved, 1) : '–'} note="of its norm" />
    <${Stat} label="Changed" value=${int(summary.changed)} unit=${'of ' + int(summary.compared)} note=${`added ${added.length}, removed ${removed.length}`} />
    <${Stat} label="Plain values" value=${int(data.values.length)} note="that differ, beside the tensors" />
  </dl>`;
}

function answer({ a, summary, same, rows }) {
  const spoiled = rows.filter((one) => one.spoiled);
  const most = rows.reduce((best, one) => (Number(one.rel ?? 0) > Number(best?.rel ?? 0) ? one : best), null);
  const rest = same.length ? plural(same.length, 'tensor') + ' did not change at all' : 'everything changed a little';
  if (spoiled.length)
    return `${fullName(a)}: ${spoiled[0].name} has ${plural(spoiled[0].spoiled, 'value')} that ${spoiled[0].spoiled === 1 ? 'is' : 'are'} not finite any more${spoiled.length > 1 ? `, and so have ${int(spoiled.length - 1)} others` : ''}; ${rest}.`;
  if (!most) return `${fullName(a)}: nothing moved in ${plural(summary.compared, 'tensor')}.`;
  const far = most.rel === 'Infinity' ? 'away from zero' : `by ${pct(most.rel, 1)} of its norm`;
  return `${fullName(a)}: ${most.name} moved most, ${far}; ${rest}.`;
}

const Choose = () =>
  html`<div class="page"><${Head} title="What moved most">No two checkpoints are chosen.<//>
    <div class="panel"><${Blank} icon="swap" title="Choose two checkpoints" action=${html`<a class="btn" href="#/checkpoints">Checkpoints</a>`}>Select two in the list and press Diff.<//></div></div>`;

export default function Diff() {
  useCrumbs(CRUMBS);
  const [a] = useOption('a');
  const [b] = useOption('b');
  const [by, setBy] = useOption('by', 'rel');
  const alone = useResource(!a && b ? '/api/checkpoints/' + part(b) : null); // "with the one before"
  useEffect(() => {
    if (!a && alone.data?.prev) setOptions({ a: alone.data.prev });
  }, [alone.data]);
  const asked = useResource(a && b ? url('/api/diff', { a, b, by: by === 'name' ? null : by }) : null);
  const one = useResource(asked.data?.a && '/api/checkpoints/' + part(asked.data.a));
  const other = useResource(asked.data?.b && '/api/checkpoints/' + part(asked.data.b));
  const job = useComputing(asked);
  if (!b || (!a && alone.data && !alone.data.prev)) return html`<${Choose} />`;
  if (!a) return pending(alone, { title: 'What moved most' }) || html`<${Choose} />`;
  const waiting = pending(asked, { title: 'What moved most', back: ['#/checkpoints', 'All checkpoints'] });
  if (waiting) return waiting;
  if (job)
    return html`<div class="page"><${Head} title="What moved most">Comparing two checkpoints.<//><div class="panel"><${Computing} id=${job} what="the difference" /></div></div>`;
  if (asked.data.state === 'failed')
    return html`<div class="page"><${Head} title="What moved most">The comparison failed.<//><div class="panel"><${Blank} icon="wrench" title="They could not be compared" action=${html`<${Button} onClick=${asked.reload}>Try again<//>`}>${asked.data.error}<//></div></div>`;
  const waitingForBoth = pending(one.data ? other : one, { title: 'What moved most' });
  if (waitingForBoth) return waitingForBoth;
  const data = { ...asked.data, a: one.data, b: other.data };
  return html`<div class="page">
    <${Head} title="What moved most">${answer(data)}<//>
    <${Choice} a=${data.a} b=${data.b} />
    <${Figures} data=${data} />
    <${Ranked} key=${data.a.id + data.b.id} data=${data} by=${by} setBy=${setBy} />
  </div>`;
}
