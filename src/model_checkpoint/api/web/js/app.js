// Starts everything: the token is taken from the address first, then the page is fetched and the frame drawn; what the
// frame itself wants to know is asked behind the page's own question.
import { html, render } from '../vendor/preact-htm.js';
import './data/session.js';
import { here } from './core/address.js';
import { answered } from './data/listing.js';
import { start } from './data/live.js';
import { learn } from './data/server.js';
import { watchJobs } from './data/jobs.js';
import { exists, load } from './frame/pages.js';
import { Shell } from './frame/shell.js';

const name = here().parts[0];
const page = exists(name) ? load(name) : Promise.resolve();
render(html`<${Shell} />`, document.getElementById('app'));
page
  .catch(() => {}) // the frame says what failed
  .then(answered)
  .then(() => {
    learn();
    watchJobs();
    start();
  });
