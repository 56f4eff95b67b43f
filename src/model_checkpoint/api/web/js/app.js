// Starts everything: the token is taken from the address first, then the frame is drawn, then the server is asked.
import { html, render } from '../vendor/preact-htm.js';
import './data/session.js';
import { start } from './data/live.js';
import { learn } from './data/server.js';
import { watchJobs } from './data/jobs.js';
import { Shell } from './frame/shell.js';

render(html`<${Shell} />`, document.getElementById('app'));
learn();
watchJobs();
start();
