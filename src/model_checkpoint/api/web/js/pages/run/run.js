// How is it going? Charts with checkpoints on them; the other tabs answer the questions that follow.
import { html, useEffect } from '../../../vendor/preact-htm.js';
import { href, runLink, checkpointLink, useOption } from '../../core/address.js';
import { ago, bytes, dur, int, num, pct } from '../../core/format.js';
import { now } from '../../core/clock.js';
import { living, riskSeconds } from '../../core/risk.js';
import { useTick } from '../../core/tick.js';
import { part } from '../../data/http.js';
import { useListing } from '../../data/listing.js';
import { useResource, useWatch } from '../../data/resource.js';
import { useCrumbs } from '../../frame/crumbs.js';
import { Tags } from '../../ui/button.js';
import { Tabs } from '../../ui/choice.js';
import { Menu } from '../../ui/menu.js';
import { Head, Stat } from '../../ui/panel.js';
import { pending, Stale } from '../../ui/states.js';
import { Badge } from '../../ui/status.js';
import { CheckpointTable } from '../checkpoint_table.js';
import { headline } from './run_columns.js';
import { SaveTimeline } from '../save_timeline.js';
import { Charts } from './charts.js';
import { Config } from './config.js';
import { LossScale } from './loss_scale.js';
import { MemoryPlan } from './memory_plan.js';

const MARKS_AT_MOST = 1000;

function secondsLeft(run) {
  const rate = run.status === 'alive' && run.steps_per_s;
  return rate && run.total_steps ? Math.max(0, run.total_steps - run.step) / rate : null;
}

function Answer({ run }) {
  useTick();
  const value = headline(run);
  const left = secondsLeft(run);
  const step = `At step ${int(run.step)}${run.total_steps ? ' of ' + int(run.total_steps) : ''}`;
  const metric =
    value.last == null
      ? 'no metric logged'
      : `${run.spark_key} ${num(value.last)}, best ${num(value.best)} at step ${int(value.best_step)}`;
  const risk =
    run.at_risk && run.status !== 'finished' ? `; ${dur(riskSeconds(run))} of work ${living(run) ? 'at risk' : 'lost'}` : '';
  const from =
    run.parent &&
    html` from <a href=${checkpointLink(run.parent.checkpoint)}>${run.parent.run_name || run.parent.run || 'another run'}${run.parent.step == null ? '' : ' at step ' + int(run.parent.step)}</a>`;
  const where = [run.experiment && 'Experiment ' + run.experiment, run.host && 'on ' + run.host, run.user && 'by ' + run.user].filter(Boolean).join(' ').replace(/^[a-z]/, (first) => first.toUpperCase());
  return html`${`${step}${left ? ', ' + dur(left) + ' left' : ''}: ${metric}${risk}. ${where}${where ? ', started ' : 'Started '}${ago(run.started)}`}${from}${'.' + (run.notes ? ' ' + run.notes : '')}`;
}

const pace = (run) => {
  const left = secondsLeft(run);
  if (left != null) return `${dur(left)} left at ${num(run.steps_per_s, 3)} steps/s`;
  if (run.ended) return 'ended ' + ago(run.ended);
  return run.last_step_at ? 'last step ' + ago(run.last_step_at) : 'no step yet';
};

function NextSave({ run }) {
  if (run.saving)
    return html`<${Stat} label="Saving now" value=${run.saving.done == null ? 'writing' : pct(run.saving.done)} note=${html`<${Badge} of="saving" bare text=${run.saving.step == null ? 'saving' : 'step ' + int(run.saving.step)} />`} />`;
  const next = run.next_save;
  const wait = next?.eta == null ? null : next.eta - now();
  const value = wait == null ? (next ? 'step ' + int(next.step) : '–') : wait > 0 ? 'in ' + dur(wait) : 'due now';
  const note = next ? 'at step ' + int(next.step) : run.status === 'alive' ? 'no rhythm known yet' : 'not running';
  return html`<${Stat} label="Next save" value=${value} note=${note} />`;
}

function Figures({ run }) {
  useTick();
  const value = headline(run);
  const best = value.best == null ? 'nothing logged' : `best ${num(value.best)} at step ${int(value.best_step)}`;
  const safe = run.safe
    ? html`step ${int(run.safe.step)}, <${Badge} of=${run.safe.health} bare />`
    : 'nothing to resume from yet';
  return html`<dl class="stats">
    <${Stat} label="Step" value=${int(run.step)} unit=${run.total_steps ? 'of ' + int(run.total_steps) : ''} note=${pace(run)} />
    <${Stat} label=${run.spark_key || 'Metric'} value=${value.last == null ? '–' : num(value.last)} note=${best} />
    <${Stat} label="Newest safe checkpoint" value=${run.safe ? ago(run.safe.at) : 'none'} note=${safe} />
    <${NextSave} run=${run} />
    <${Stat} label="Kept" value=${int(run.n)} unit=${run.n === 1 ? 'checkpoint' : 'checkpoints'} note=${bytes(run.bytes_unique) + ' unique'} />
  </dl>`;
}

function tabsOf(run) {
  const tab = (key, word, count) => [key, word, runLink(run.id, key === 'charts' ? '' : key), count];
  return [
    tab('charts', 'Charts'),
    tab('checkpoints', 'Checkpoints', int(run.n)),
    tab('config', 'Config'),
    tab('saves', 'Saves'),
    ...(run.has?.memory ? [tab('memory', 'Memory plan')] : []),
    ...(run.has?.loss_scale ? [tab('lossscale', 'Loss scale')] : []),
  ];
}

export default function Run({ route }) {
  const id = route.parts[1];
  const tab = route.parts[2] || 'charts';
  const mine = (event) => event.id === id || event.type === 'reconnected';
  const asked = useResource('/api/runs/' + part(id), { watch: mine, pause: 1000 });
  const [sort] = useOption('sort', '-step');
  const list = useListing('/api/checkpoints', { run: id, sort });
  useWatch((event) => event.type === 'checkpoint' && event.id === id, sort === '-step' ? list.freshen : list.reload, 500);
  useEffect(() => {
    if (list.next && list.rows.length < MARKS_AT_MOST) list.more();
  }, [list.next]);
  const run = asked.data;
  useCrumbs(
    run && [
      ['Runs', '#/runs'],
      ...(run.experiment ? [[run.experiment, href('/runs', { q: `experiment:"${run.experiment}"` })]] : []),
      [run.name],
    ],
  );
  const waiting = pending(asked, { title: 'Run', back: ['#/runs', 'All runs'] });
  if (waiting) return waiting;
  const buttons = html`<a class="btn" href=${href('/compare', { runs: [id, run.parent?.run].filter(Boolean).join(',') })}>Compare</a>
    ${run.safe && html`<a class="btn" href=${checkpointLink(run.safe.id)}>Newest checkpoint</a>`}
    <${Menu} label="More" icon="dots" look="icon">
      <a href=${href('/lineage', { exp: run.experiment })}>Lineage</a>
    <//>`;
  return html`<div class="page">
    <${Head} title=${html`${run.name}<${Badge} of=${run.status} title=${run.evidence} /><${Tags} list=${run.tags} />`} end=${buttons}><${Answer} run=${run} /><//>
    <${Stale} of=${asked} />
    <${Figures} run=${run} />
    <${Tabs} label="Run" items=${tabsOf(run)} current=${tab} />
    ${tab === 'charts' && html`<${Charts} run=${run} checkpoints=${list.rows} />`}
    ${tab === 'checkpoints' && html`<${CheckpointTable} list=${list} inRun after=${() => (list.reload(), asked.reload())} />`}
    ${tab === 'config' && html`<${Config} run=${run} />`}
    ${tab === 'saves' && html`<${SaveTimeline} run=${run} />`}
    ${tab === 'memory' && html`<${MemoryPlan} run=${run} />`}
    ${tab === 'lossscale' && html`<${LossScale} run=${run} />`}
  </div>`;
}
