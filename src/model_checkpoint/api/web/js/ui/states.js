// Nothing there, not there yet, went wrong: what happened, what it means, what to do now.
import { html } from '../../vendor/preact-htm.js';
import { Icon } from './icons.js';
import { Button } from './button.js';
import { Code } from './code.js';
import { Meter } from './panel.js';
import { pct } from '../core/format.js';
import { useCell } from '../core/cell.js';
import { jobs, noteOf, shareOf } from '../data/jobs.js';

export const Blank = ({ icon, title, children, code, action }) =>
  html`<div class="blank">
    <${Icon} name=${icon} />
    <h2>${title}</h2>
    <p>${children}</p>
    ${code && html`<${Code} text=${code} />`}${action}
  </div>`;

export const Skeleton = ({ rows = 6 }) =>
  html`<div role="status" aria-label="Loading">
    ${[...Array(rows)].map(
      (_, i) =>
        html`<div class="skrow">
          <div class="sk" style=${{ width: 50 + ((i * 37) % 45) + '%' }}></div>
          <div class="sk"></div>
          <div class="sk"></div>
          <div class="sk"></div>
        </div>`,
    )}
  </div>`;

const WORDS = {
  offline: [
    'bolt',
    'The server does not answer',
    'It was started with mckpt serve and may have been stopped. Training is not affected.',
  ],
  busy: ['clock', 'Too many questions at once', 'The server limits how often it is asked. Wait a moment.'],
  missing: ['search', 'Not here', 'It may have been removed, or belong to a root this server does not show.'],
  denied: ['shield', 'Not allowed', 'The token does not open this.'],
  invalid: ['search', 'The server cannot read this address', 'A filter or a number in it is not understood.'],
  server: ['wrench', 'The server failed', 'Nothing was changed. Its log says more.'],
};

export function Failure({ error, retry, back }) {
  const [icon, title, meaning] = WORDS[error.kind] || WORDS.server;
  const action = html`<div class="btngroup">
    ${retry && html`<${Button} look="pri" onClick=${retry}>Try again<//>`}
    ${back && html`<a class="btn" href=${back[0]}>${back[1]}</a>`}
  </div>`;
  const said = error.message === title + '.' ? '' : error.message;
  return html`<div role="alert"><${Blank} icon=${icon} title=${title} action=${action}>${said} ${meaning}<//></div>`;
}

// A page whose one question failed or is on its way; null once there is an answer.
export function pending({ data, error, reload }, { rows = 10, back, title } = {}) {
  if (data) return null;
  const inside = error ? html`<${Failure} error=${error} retry=${reload} back=${back} />` : html`<${Skeleton} rows=${rows} />`;
  return html`<div class="page">
    ${title && html`<div class="pagehead"><div class="grow"><h1>${title}</h1></div></div>`}
    <div class="panel">${inside}</div>
  </div>`;
}

// Old figures are better than none, as long as the page says that they are old.
export const Stale = ({ of }) =>
  of.error &&
  of.data &&
  html`<div class="note-bar warn" role="alert">
    <${Icon} name="bolt" /><span class="grow">${of.error.message} What you see is what it said last.</span>
    <${Button} look="sm" onClick=${of.reload}>Try again<//>
  </div>`;

export function Computing({ id, what }) {
  const job = useCell(jobs).find((one) => one.id === id);
  const note = noteOf(job);
  return html`<div class="blank" role="status">
    <${Icon} name="clock" />
    <h2>Computing ${what}</h2>
    <p>Every byte is read once and the answer is kept under its digest; the next visit shows it at once.</p>
    <div class="computing"><${Meter} share=${shareOf(job)} label=${'Computing ' + what} /></div>
    <p class="small">${pct(shareOf(job))}${note ? ', ' + note : ''}</p>
  </div>`;
}
