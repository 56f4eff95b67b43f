// Who may look: the token comes in the fragment of the address `mckpt serve` prints, and stays in this tab only.
import { cell } from '../core/cell.js';

const KEY = 'mc.token';
let token = null;

function remember(value) {
  token = value;
  try {
    sessionStorage.setItem(KEY, value);
  } catch {
    /* it lives as long as this page */
  }
}

function takeFromAddress() {
  const given = /^#token=([^&]+)(?:&to=(.*))?$/.exec(location.hash);
  if (!given) return false;
  remember(decodeURIComponent(given[1]));
  history.replaceState(null, '', '#' + (given[2] ? decodeURIComponent(given[2]) : '/runs')); // no token in the history
  return true;
}

takeFromAddress();
if (token == null) {
  try {
    token = sessionStorage.getItem(KEY);
  } catch {
    /* none then */
  }
}

// The address was pasted into a tab that has the dashboard open already.
addEventListener('hashchange', () => takeFromAddress() && denied.set(false));

export const denied = cell(false); // the server refused the token, or wants one
export const bearer = () => (token ? { Authorization: 'Bearer ' + token } : {});

export function enter(value) {
  remember(value.trim());
  denied.set(false);
}
