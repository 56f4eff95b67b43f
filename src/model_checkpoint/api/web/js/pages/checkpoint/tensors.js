// The tensors of a checkpoint with what their values look like. Computed once per digest, as a job.
import { html, useEffect, useState } from '../../../vendor/preact-htm.js';
import { useOption } from '../../core/address.js';
import { bytes, int, num, pct, plural, shape } from '../../core/format.js';
import { part } from '../../data/http.js';
import { useListing } from '../../data/listing.js';
import { useComputing } from '../../data/resource.js';
import { Table, sortFrom } from '../../table/table.js';
import { Button } from '../../ui/button.js';
import { Histogram } from '../../ui/drawings.js';
import { Blank, Computing, Failure, Skeleton } from '../../ui/states.js';
import { Badge } from '../../ui/status.js';

const REST = 250; // ms without a key before the server is asked

const Values = ({ of }) =>
  of.lost
    ? html`<${Badge} of="damaged" text="lost" />`
    : html`<${Histogram} before=${of.hist} label=${`Histogram from ${num(of.min)} to ${num(of.max)}`} />`;
const Broken = ({ of }) =>
  of.nan + of.inf ? html`<span class="t-bad strong">${int(of.nan)} / ${int(of.inf)}</span>` : html`<span class="subtle">0</span>`;
const count = (one) => one.shape.reduce((all, n) => all * n, 1);
const known = (value, show) => (value == null ? html`<span class="subtle">–</span>` : show(value));

const COLUMNS = [
  {
    key: 'name',
    label: 'Tensor',
    width: 200,
    prio: 0,
    fixed: true,
    grow: true,
    sort: true,
    render: (one) => html`<span class="mono" title=${one.name}>${one.name}</span>`,
  },
  {
    key: 'shape',
    label: 'Shape',
    width: 116,
    narrow: 96,
    prio: 1,
    render: (one) => html`<span class="mono muted">${shape(one.shape)}</span>`,
  },
  { key: 'hist', label: 'Values', width: 130, prio: 2, render: (one) => html`<${Values} of=${one} />` },
  {
    key: 'std',
    label: 'Mean ± std',
    width: 140,
    num: true,
    prio: 3,
    sort: true,
    render: (one) => known(one.mean, (mean) => html`<span class="mono small">${num(mean, 2)} ± ${num(one.std, 2)}</span>`),
  },
  {
    key: 'norm',
    label: 'Norm',
    width: 80,
    num: true,
    prio: 4,
    sort: true,
    render: (one) => known(one.norm, (norm) => html`<span class="mono">${num(norm, 3)}</span>`),
  },
  { key: 'nan', label: 'NaN / Inf', width: 80, num: true, prio: 2, sort: true, render: (one) => html`<${Broken} of=${one} />` },
  {
    key: 'zeros',
    label: 'Zeros',
    width: 66,
    num: true,
    prio: 6,
    sort: true,
    render: (one) => known(one.zeros, (zeros) => html`<span class="muted">${pct(zeros / (count(one) || 1), 1)}</span>`),
  },
  { key: 'dtype', label: 'Type', width: 84, prio: 5, sort: true, render: (one) => html`<span class="muted">${one.dtype}</span>` },
  { key: 'bytes', label: 'Bytes', width: 84, num: true, prio: 3, sort: true, render: (one) => bytes(one.bytes) },
];

export function Tensors({ row }) {
  const [sort, setSort] = useOption('sort', '-bytes');
  const [q, setQ] = useOption('t');
  const [text, setText] = useState(q);
  const list = useListing(`/api/checkpoints/${part(row.id)}/tensors`, { q, sort });
  const job = useComputing(list);
  const broken = list.data?.state === 'failed' ? list.data.error : null;
  useEffect(() => {
    const timer = setTimeout(() => text !== q && setQ(text), REST);
    return () => clearTimeout(timer);
  }, [text]);
  if (list.error && !list.data) return html`<div class="panel"><${Failure} error=${list.error} retry=${list.reload} /></div>`;
  if (!list.data) return html`<div class="panel"><${Skeleton} /></div>`;
  if (job) return html`<div class="panel"><${Computing} id=${job} what="histograms" /></div>`;
  if (broken)
    return html`<div class="panel"><${Blank} icon="wrench" title="The figures could not be computed" action=${html`<${Button} onClick=${list.reload}>Try again<//>`}>${broken}<//></div>`;
  const hurt = list.rows.filter((one) => one.nan + one.inf > 0).length;
  return html`<section class="panel">
    <header>
      <span class="sub">${plural(list.total, 'tensor')}, ${hurt ? int(hurt) : 'none'} with NaN or Inf${list.next ? ' among those shown' : ''}</span>
      <div class="end"><input class="input" placeholder="Filter by name" aria-label="Filter tensors" value=${text} onInput=${(event) => setText(event.target.value)} /></div>
    </header>
    <${Table} label="Tensors" columns=${COLUMNS} rows=${list.rows} total=${list.total} more=${list.more} rowKey=${(one) => one.part + '/' + one.name}
      sort=${sortFrom(sort)} onSort=${setSort} sub=${(one) => `${one.dtype} · ${bytes(one.bytes)} · norm ${num(one.norm, 3)}`}
      empty=${html`<${Blank} icon="search" title="No tensor has that name">Try a part of the name, such as <code>attn</code>.<//>`} />
  </section>`;
}
