// Runs before style sheets and modules are here. Storage can throw (private mode): all is guarded.
// The theme is set, so that dark never flashes white.
(function () {
  let choice = 'auto';
  try {
    choice = localStorage.getItem('mc.theme') || 'auto';
  } catch {
    /* keep auto */
  }
  const asked = /[?&]theme=(light|dark)/.exec(location.search); // for screenshots and shared links
  if (asked) choice = asked[1];
  const dark = choice === 'dark' || (choice === 'auto' && matchMedia('(prefers-color-scheme: dark)').matches);
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
})();

// The list of runs is asked for, if that is the page; `data/http.js` hands the answer to whoever asks the same.
(function () {
  const given = /^#token=([^&]+)(?:&to=(.*))?$/.exec(location.hash);
  const route = given ? decodeURIComponent(given[2] || '') : location.hash.slice(1);
  if (route !== '' && route !== '/runs') return;
  let token = given && decodeURIComponent(given[1]);
  try {
    token ??= sessionStorage.getItem('mc.token');
  } catch {
    /* none then */
  }
  const path = '/api/runs?limit=200&sort=status';
  const headers = token ? { Authorization: 'Bearer ' + token } : {};
  window.early = { path, answer: fetch(path, { headers, cache: 'no-store' }) };
  window.early.answer.catch(() => {}); // told to whoever asks
})();
