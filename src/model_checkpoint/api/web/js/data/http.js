// One way to the server. Every failure becomes an Error with `kind`, so that pages can say what to do.
import { bearer, denied } from './session.js';

const KINDS = { 400: 'invalid', 401: 'denied', 403: 'denied', 404: 'missing', 409: 'conflict', 422: 'invalid', 429: 'busy' };

async function failure(response) {
  let told = {};
  try {
    told = await response.json();
  } catch {
    /* an answer without words */
  }
  const message = typeof told.error === 'string' ? told.error : `The server answered ${response.status}.`;
  return Object.assign(new Error(message), { kind: KINDS[response.status] || 'server', status: response.status, told });
}

// What `early.js` asked before anything else was here; handed out once, since an answer is of its moment.
function askedEarly(path) {
  const { early } = window;
  if (early?.path !== path) return null;
  window.early = null;
  return early.answer;
}

async function ask(path, options = {}) {
  const headers = { ...bearer(), ...options.headers };
  let response;
  try {
    response = await (askedEarly(path) ?? fetch(path, { ...options, headers, cache: 'no-store' }));
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw Object.assign(new Error('The server does not answer.'), { kind: 'offline' });
  }
  if (response.ok) return response;
  if (response.status === 401) denied.set(true);
  throw await failure(response);
}

// A failure that says nothing of what was asked: the same question may have an answer a moment later.
export const mayPass = (error) => ['offline', 'server', 'busy'].includes(error.kind);

export const getJson = async (path, signal) => (await ask(path, { signal })).json();
export const getBinary = async (path, signal) => (await ask(path, { signal })).arrayBuffer();
export const getStream = (path, headers, signal) => ask(path, { headers, signal });

export async function post(path, body = {}) {
  const response = await ask(path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  return response.json();
}

export function url(path, options = {}) {
  const given = Object.entries(options).filter(([, value]) => value != null && value !== '');
  const text = new URLSearchParams(given).toString();
  return path + (text ? '?' + text : '');
}

export const part = encodeURIComponent; // one segment of a path
