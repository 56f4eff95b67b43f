// Where did this come from? A track per run along its steps; a branch leaves its parent at the checkpoint it started from.
import { html, useMemo } from '../../vendor/preact-htm.js';
import { checkpointLink, go, runLink, useOption } from '../core/address.js';
import { int, plural } from '../core/format.js';
import { getJson, url } from '../data/http.js';
import { useChanged, useResource } from '../data/resource.js';
import { Table } from '../table/table.js';
import { Segments, Select } from '../ui/choice.js';
import { Head, Panel } from '../ui/panel.js';
import { Blank, pending, Stale } from '../ui/states.js';
import { Badge } from '../ui/status.js';
import { LineageGraph, LineageKey } from './lineage_graph.js';
import { said } from './run/config.js';

const TOO_MANY = 60; // tracks in one drawing
const ABOUT_A_RUN = ['run', 'step', 'checkpoint', 'damage'];
const AT_ONCE = 50; // runs in one question
const FRESH_EVERY = 1000; // ms: one question for all that changed meanwhile
const SHOWS = [
  ['', 'Branched runs'],
  ['1', 'All runs'],
];

// A run that goes on from a checkpoint counts its steps on, as a resume does, or anew, as a fine-tuning does.
const countsOn = (node, from) => (node.first_step ?? node.last_step) >= from;

// Trees first, children right under their parent, so that no line crosses a foreign track. On the axis of a tree the steps
// of a run begin at `zero`, and it begins itself at `start`.
function tracks(nodes, all) {
  const known = new Set(nodes.map((node) => node.run));
  const children = new Map();
  for (const node of nodes) if (known.has(node.parent)) children.set(node.parent, [...(children.get(node.parent) || []), node]);
  const out = [];
  const put = (node, zero, start) => {
    out.push({ ...node, zero, start, row: out.length });
    const from = (child) => node.checkpoints.find((mark) => mark.id === child.checkpoint)?.step ?? child.step ?? 0;
    const mine = (children.get(node.run) || []).map((child) => ({ ...child, step: from(child) }));
    const begin = (child) => put(child, countsOn(child, child.step) ? zero : zero + child.step, zero + child.step);
    mine.sort((a, b) => b.step - a.step).forEach(begin);
  };
  const roots = nodes.filter((node) => !known.has(node.parent));
  roots.filter((node) => children.has(node.run)).forEach((node) => put(node, 0, 0));
  if (all) roots.filter((node) => !children.has(node.run)).forEach((node) => put(node, 0, 0));
  return out;
}

const changes = (node) =>
  Object.entries(node.changed).map(
    ([key, [before, after]]) => `${key} ${before == null ? 'unset' : said(before)} → ${after == null ? 'unset' : said(after)}`,
  );

const columns = (by) => [
  {
    key: 'run',
    label: 'Run',
    width: 150,
    prio: 0,
    fixed: true,
    render: (node) => html`<a class="name" href=${runLink(node.run)}>${node.name}</a>`,
  },
  { key: 'status', label: 'State', width: 100, prio: 0, render: (node) => html`<${Badge} of=${node.status} />` },
  {
    key: 'from',
    label: 'Started from',
    width: 230,
    prio: 1,
    render: (node) =>
      html`<a href=${checkpointLink(node.checkpoint)}>${by.get(node.parent)?.name ?? node.parent}, step ${int(node.step)}</a>`,
  },
  {
    key: 'changed',
    label: 'Changed',
    width: 260,
    grow: true,
    prio: 2,
    render: (node) =>
      html`<span class="mono small muted" title=${changes(node).join('\n')}>${changes(node).join('  ·  ') || 'nothing in the config'}</span>`,
  },
  { key: 'steps', label: 'Steps', width: 90, num: true, prio: 3, render: (node) => int(node.last_step) },
];

// The tree grows by what events speak of: those runs and what they came from are asked for, and put where they were.
function useLineage() {
  const tree = useResource('/api/lineage', { watch: (event) => event.type === 'reconnected' });
  useChanged(
    (event) => ABOUT_A_RUN.includes(event.type),
    async (ids) => {
      const some = ids.slice(0, AT_ONCE);
      const fresh = await getJson(url('/api/lineage', { ids: some.join(',') }));
      tree.patch((old) => ({ ...old, nodes: grown(old.nodes, some, fresh.nodes) }));
      return ids.slice(AT_ONCE);
    },
    FRESH_EVERY,
  );
  return tree;
}

// Those asked for that are no more go; new ones come last, as they began last.
function grown(nodes, asked, fresh) {
  const by = new Map(fresh.map((node) => [node.run, node]));
  const gone = new Set(asked.filter((id) => !by.has(id)));
  const here = new Set(nodes.map((node) => node.run));
  const kept = nodes.filter((node) => !gone.has(node.run)).map((node) => by.get(node.run) || node);
  return [...kept, ...fresh.filter((node) => !here.has(node.run))];
}

const inOneSentence = (branched, all) =>
  branched
    ? `${int(branched)} of the ${plural(all, 'run')} shown started from a checkpoint of another. Steps are counted from the first ancestor, so a branch sits where it really began.`
    : `${all === 1 ? 'The one run shown did not start' : `None of the ${int(all)} runs shown started`} from a checkpoint of another.`;

export default function Lineage() {
  const [wanted, setExperiment] = useOption('exp');
  const [all, setAll] = useOption('all');
  const everything = useLineage();
  const experiments = useMemo(() => experimentsOf(everything.data?.nodes || []), [everything.data]);
  const experiment = wanted || experiments[0]?.[0] || '';
  const shown = useMemo(() => {
    const mine = (everything.data?.nodes || []).filter((node) => node.experiment === experiment);
    return tracks(mine, all || !mine.some((node) => node.parent)).slice(0, TOO_MANY);
  }, [everything.data, experiment, all]);
  const waiting = pending(everything, { title: 'Lineage' });
  if (waiting) return waiting;
  const by = new Map(shown.map((node) => [node.run, node]));
  const branched = shown.filter((node) => node.parent);
  const end = html`<${Select} label="Experiment" value=${experiment} options=${experiments.map(([name, n]) => [name, `${name || 'no experiment'} (${n})`])} onChange=${setExperiment} />
    <${Segments} label="Show" value=${all} onChange=${setAll} options=${SHOWS} />`;
  if (!shown.length)
    return html`<div class="page"><${Head} title="Lineage" end=${experiments.length > 0 && end}>No run has been recorded here yet.<//>
      <div class="panel"><${Blank} icon="tree" title="Nothing to draw">Runs that go on from a checkpoint of another show up here as branches.<//></div></div>`;
  return html`<div class="page">
    <${Head} title="Lineage" end=${end}>${inOneSentence(branched.length, shown.length)}<//>
    <${Stale} of=${everything} />
    <${LineageGraph} tracks=${shown} />
    <${LineageKey} />
    ${
      branched.length > 0 &&
      html`<${Panel} flush title="Branches" sub="what each child changed against its parent">
      <${Table} label="Branches" rows=${branched} rowKey=${(node) => node.run} onOpen=${(node) => go(runLink(node.run))} columns=${columns(by)}
        sub=${(node) => `from ${by.get(node.parent)?.name ?? node.parent} · ${changes(node).join(', ')}`} />
    <//>`
    }
  </div>`;
}

// The experiments with the most branches first: there is most to see.
function experimentsOf(nodes) {
  const counts = new Map();
  for (const node of nodes) {
    const [n, branches] = counts.get(node.experiment) || [0, 0];
    counts.set(node.experiment, [n + 1, branches + (node.parent ? 1 : 0)]);
  }
  return [...counts].sort((a, b) => b[1][1] - a[1][1] || b[1][0] - a[1][0]).map(([name, [n]]) => [name, n]);
}
