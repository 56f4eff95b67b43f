// Runs before the style sheets apply, so that dark never flashes white. Storage can throw (private mode): all is guarded.
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
