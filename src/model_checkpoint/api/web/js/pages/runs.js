// Is my run alive, and what would I lose? One sentence first, then the list.
import { html, useState, useEffect, useMemo, useRef } from '../../vendor/preact-htm.js';
import { go, here, href, runLink, checkpointLink, useOption } from '../core/address.js';
import { dur, fullName, int, plural } from '../core/format.js';
import { keys } from '../core/keys.js';
import { mainMetric } from '../core/metrics.js';
import { now } from '../core/clock.js';
import { useTick } from '../core/tick.js';
import { getJson, url } from '../data/http.js';
import { askAhead, useListing } from '../data/listing.js';
import { useChanged, useWatch } from '../data/resource.js';
import { ColumnMenu, useColumns } from '../table/columns.js';
import { Table, sortFrom } from '../table/table.js';
import { Button, Chip } from '../ui/button.js';
import { Shape } from '../ui/icons.js';
import { Menu } from '../ui/menu.js';
import { Head } from '../ui/panel.js';
import { QueryBar } from '../ui/query_bar.js';
import { Blank, Failure, Skeleton, Stale } from '../ui/states.js';
import { runColumns, runInOneLine } from './run/run_columns.js';

const AT_MOST = 8; // runs in one comparison
const FIELDS = ['status:', 'tag:', 'experiment:', 'host:', 'user:', 'name:'];
const sum = (counts) => Object.values(counts).reduce((all, n) => all + n, 0);
const SORT = 'status';
const FRESH_EVERY = 500; // ms: one question for all rows that changed meanwhile

if (here().parts[0] === 'runs') askAhead('/api/runs', { q: here().q.q, sort: here().q.sort ?? SORT });

const AT_ONCE = 50; // rows in one question
const ABOUT_A_RUN = ['run', 'step', 'points', 'checkpoint', 'damage'];

// Only the rows events speak of are fetched again, through the same filter: one that fits no more goes, a new one comes.
function useFreshRows(list, { q, sort }) {
  useChanged(
    (event) => ABOUT_A_RUN.includes(event.type),
    async (ids) => {
      const some = ids.slice(0, AT_ONCE);
      const fresh = await getJson(url('/api/runs', { ids: some.join(','), q, sort, limit: some.length }));
      list.putRows(some, fresh);
      return ids.slice(AT_ONCE);
    },
    FRESH_EVERY,
  );
  useWatch((event) => event.type === 'reconnected', list.reload);
}

const Attention = ({ run }) => {
  const dead = run.status === 'dead';
  const lost =
    dead && run.safe
      ? ` It can resume from step ${int(run.safe.step)} (${run.safe.health})${run.at_risk ? `; ${dur(run.at_risk.seconds)} of work is lost` : ''}.`
      : '';
  const nothing = !run.safe ? ' It has no safe checkpoint yet.' : '';
  return html`<div class=${'note-bar ' + (dead ? 'bad' : 'warn')}>
    <${Shape} kind=${dead ? 'dead' : 'warn'} />
    <span class="grow"><a href=${runLink(run.id)}><b>${fullName(run)}</b></a>${' is ' + run.status + (run.host ? ' on ' + run.host : '') + ': ' + run.evidence + '.' + lost + nothing}</span>
    ${
      dead && run.safe
        ? html`<a class="btn sm" href=${checkpointLink(run.safe.id)}>How to resume</a>`
        : html`<a class="btn sm" href=${runLink(run.id, 'saves')}>Look at its saves</a>`
    }
  </div>`;
};

function safety(unsafe, all) {
  if (!unsafe) return 'every one of them can resume from a safe checkpoint';
  if (unsafe === all) return 'none of them has a safe checkpoint';
  return `${int(unsafe)} of them ${unsafe === 1 ? 'has' : 'have'} no safe checkpoint`;
}

function Answer({ data }) {
  useTick();
  const { all_counts: counts, worst_at_risk: worst, unsafe } = data;
  const all = sum(counts);
  const living = counts.alive + counts.stalled;
  if (!all) return html`No run has been recorded yet.`;
  if (!living && !counts.dead)
    return html`Nothing is running. ${plural(all, 'run')} ended: ${int(counts.finished)} finished, ${int(counts.failed)} failed, ${int(counts.stopped)} stopped${counts.unknown ? `, ${int(counts.unknown)} without a tracker` : ''}.`;
  return html`${int(counts.alive)} alive, ${int(counts.stalled)} stalled, ${int(counts.dead)} dead; ${safety(unsafe, living + counts.dead)}.${worst ? ` The most work at risk in a living run is ${dur(worst.seconds + Math.max(0, now() - data.as_of))} (${worst.name}).` : ''}`;
}

const NoRuns = () =>
  html`<${Blank} icon="runs" title="No runs yet" code=${'import model_checkpoint as mc\nmc.save("runs/a", {"model": model}, step=1)'}>
    This server shows no checkpoints yet. Save one, and it shows up here within a second.
  <//>`;

export default function Runs() {
  const [q, setQ] = useOption('q');
  const [sort, setSort] = useOption('sort', SORT);
  const list = useListing('/api/runs', { q, sort });
  const [selected, setSelected] = useState(new Set());
  const chosen = useColumns('runs');
  useFreshRows(list, { q, sort });
  const metric = mainMetric(list.data?.metric_names || []);
  const columns = useMemo(() => runColumns(metric), [metric]);
  const picked = useRef(selected);
  const select = (next) => {
    picked.current = typeof next === 'function' ? next(picked.current) : next; // keys come faster than frames
    setSelected(picked.current);
  };
  const compare = () =>
    picked.current.size > 1 && go(href('/compare', { runs: [...picked.current].slice(0, AT_MOST).join(',') }));
  useEffect(() => keys({ c: compare }), []);
  const told = list.error?.kind === 'invalid' ? { error: list.error.message, ...list.error.told } : null;
  if (!list.data) {
    const inside =
      list.error && !told ? html`<${Failure} error=${list.error} retry=${list.reload} />` : html`<${Skeleton} rows=${12} />`;
    return html`<div class="page"><${Head} title="Runs" />
      <div class="panel">${told && html`<div class="tbl-tools"><${QueryBar} query=${q} onChange=${setQ} told=${told} /></div>`}${!told && inside}</div></div>`;
  }
  const { all_counts: counts, attention } = list.data;
  const all = sum(counts);
  const fields = [...FIELDS, ...list.data.names.slice(0, 12).map((name) => name + ' <')];
  const chip = (word, query) =>
    counts[query.slice(7)] > 0 &&
    html`<${Chip} on=${q === query} count=${int(counts[query.slice(7)])} onClick=${() => setQ(q === query ? '' : query)}>${word}<//>`;
  const actions = (run) =>
    html`<${Menu} label=${'Actions for ' + run.name} icon="dots" look="ghost sm icon">
      <a href=${runLink(run.id)}>Open</a><a href=${runLink(run.id, 'checkpoints')}>Checkpoints</a><a href=${runLink(run.id, 'saves')}>Saves</a>
    <//>`;
  const nothing = all
    ? html`<${Blank} icon="search" title="No run matches" action=${html`<${Button} onClick=${() => setQ('')}>Clear the filter<//>`}>Nothing fits <code>${q}</code>. Terms are joined by AND; take one away.<//>`
    : html`<${NoRuns} />`;
  return html`<div class="page">
    <${Head} title="Runs"><${Answer} data=${list.data} /><//>
    ${list.error && !told && html`<${Stale} of=${list} />`}
    ${attention.length > 0 && html`<div class="stack tight">${attention.map((run) => html`<${Attention} key=${run.id} run=${run} />`)}</div>`}
    <div class="panel">
      <div class="tbl-tools">
        <${QueryBar} query=${q} onChange=${setQ} told=${told} fields=${fields} />
        <div class="row wrap">${chip('Alive', 'status:alive')}${chip('Failed', 'status:failed')}${chip('Finished', 'status:finished')}</div>
        <div class="end">
          <span class="small muted">${list.total === all ? plural(all, 'run') : `${int(list.total)} of ${plural(all, 'run')}`}</span>
          <${ColumnMenu} chosen=${chosen} columns=${columns} />
        </div>
      </div>
      <${Table}
        label="Runs"
        primary
        columns=${columns}
        chosen=${chosen}
        rows=${list.rows}
        total=${list.total}
        more=${list.more}
        rowKey=${(run) => run.id}
        sort=${sortFrom(sort)}
        onSort=${setSort}
        selected=${selected}
        onSelect=${select}
        onOpen=${(run) => go(runLink(run.id))}
        sub=${runInOneLine}
        actions=${actions}
        empty=${nothing}
      />
    </div>
    ${
      selected.size > 0 &&
      html`<div class="selbar">
      <b>${selected.size} selected</b>
      <${Button} look="pri" icon="compare" disabled=${selected.size < 2} onClick=${compare}>Compare<//>
      <${Button} look="ghost" onClick=${() => select(new Set())}>Clear<//>
    </div>`
    }
  </div>`;
}
