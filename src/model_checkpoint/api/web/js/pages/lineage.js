// Where did this come from? A track per run along its steps; a branch leaves its parent at the checkpoint it started from.
import { html, useMemo } from '../../vendor/preact-htm.js';
import { checkpointLink, go, runLink, useOption } from '../core/address.js';
import { int, plural } from '../core/format.js';
import { useResource } from '../data/resource.js';
import { Table } from '../table/table.js';
import { Segments, Select } from '../ui/choice.js';
import { Head, Panel } from '../ui/panel.js';
import { Blank, pending, Stale } from '../ui/states.js';
import { Badge } from '../ui/status.js';
import { LineageGraph, LineageKey } from './lineage_graph.js';
import { said } from './run/config.js';

const TOO_MANY = 60; // tracks in one drawing
const SHOWS = [
  ['', 'Branched runs'],
  ['1', 'All runs'],
];

// Trees first, children right under their parent, so that no line crosses a foreign track.
function tracks(nodes, all) {
  const known = new Set(nodes.map((node) => node.run));
  const children = new Map();
  for (const node of nodes) if (known.has(node.parent)) children.set(node.parent, [...(children.get(node.parent) || []), node]);
  const out = [];
  const put = (node, start) => {
    out.push({ ...node, start, row: out.length });
    const from = (child) => node.checkpoints.find((mark) => mark.id === child.checkpoint)?.step ?? child.step ?? 0;
    const mine = (children.get(node.run) || []).map((child) => ({ ...child, step: from(child) }));
    mine.sort((a, b) => b.step - a.step).forEach((child) => put(child, start + child.step));
  };
  const roots = nodes.filter((node) => !known.has(node.parent));
  roots.filter((node) => children.has(node.run)).forEach((node) => put(node, 0));
  if (all) roots.filter((node) => !children.has(node.run)).forEach((node) => put(node, 0));
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

export default function Lineage() {
  const [wanted, setExperiment] = useOption('exp');
  const [all, setAll] = useOption('all');
  const everything = useResource('/api/lineage', { watch: (event) => ['run', 'reconnected'].includes(event.type), pause: 3000 });
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
    <${Head} title="Lineage" end=${end}>${branched.length} of the ${plural(shown.length, 'run')} shown started from a checkpoint of another. Steps are counted from the first ancestor, so a branch sits where it really began.<//>
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
