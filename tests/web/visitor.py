"""A visitor: one browser tab that notes every console error and every request that leaves the server."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

SHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
_SETTLED = """() => {
  const main = document.querySelector('.main');
  return main && main.querySelector('.page') && !main.querySelector('.page > .panel > [role=status]')
    && document.querySelector('.rail footer')
    && (!document.querySelector('.computing') || location.hash.startsWith('#/kit')); // the kit shows that state
}"""
_SIDEWAYS = """() => {
  const main = document.querySelector('.main') || document.body;
  return [main.scrollWidth - main.clientWidth, document.documentElement.scrollWidth - innerWidth];
}"""
_RULES = """async () => (await axe.run(document, {resultTypes: ['violations']}))
  .violations.map((v) => `${v.impact} ${v.id}: ${v.nodes[0].html.slice(0, 160)}`)"""

_WATCH = """() => {
  window.seen = {};
  const look = () => {
    if (document.querySelector('.shell')) window.seen.frame ??= performance.now();
    if (document.querySelector('tr.r')) window.seen.row ??= performance.now();
  };
  new MutationObserver(look).observe(document, {childList: true, subtree: true});
}"""
_PARTS = """() => {
  const [page] = performance.getEntriesByType('navigation');
  const before = performance.getEntriesByType('resource').filter((one) => one.startTime < window.seen.row);
  const runs = before.find((one) => one.name.includes('/api/runs'));
  const files = before.filter((one) => !one.name.includes('/api/'));
  const ms = {
    'page here': page.responseEnd, 'runs asked': runs.startTime, 'modules run': page.domContentLoadedEventEnd,
    'frame drawn': window.seen.frame, 'runs here': runs.responseEnd, 'first row': window.seen.row,
  };
  return {files: files.length, ms};
}"""


class Visitor:
    """Opens pages as a person does, and keeps what went wrong."""

    ended: ClassVar[set[str]] = set()  # addresses of servers that were told to end: no answer from them is no wrong

    def __init__(self, browser, address: str, *, width: int = 1280, theme: str = "light", token: str | None = "t"):
        self._context = browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce")
        self.tab = self._context.new_page()
        self.address, self.width, self.theme, self.token = address, width, theme, token
        self.wrongs: list[str] = []
        self.asked: list[str] = []
        self.expected: tuple[str, ...] = ()  # words of console errors a test provokes
        self.tab.on("console", self._heard)
        self.tab.on("pageerror", lambda error: self.wrongs.append(f"{self.tab.url}: {error}"))
        self.tab.on("request", self._requested)
        self.tab.set_default_timeout(60_000)  # of a machine that does much else

    def _heard(self, message) -> None:
        expected = (*self.expected, "net::ERR_") if self.address in self.ended else self.expected
        if message.type == "error" and not any(word in message.text for word in expected):
            self.wrongs.append(f"{self.tab.url}: {message.text}")

    def _requested(self, request) -> None:
        self.asked.append(request.url)
        if not request.url.startswith(self.address):
            self.wrongs.append(f"{self.tab.url}: asked {request.url}")

    def open(self, route: str) -> Visitor:
        """Open a page from the start, by the address the server prints."""
        token = f"#token={self.token}&to={quote(route)}" if self.token else f"#{route}"
        self.tab.goto(f"{self.address}/?theme={self.theme}{token}")
        return self

    def go(self, route: str) -> Visitor:
        """Go to another page, as a link does."""
        self.tab.evaluate("(route) => { location.hash = route; }", route)
        return self

    def settle(self) -> Visitor:
        """Wait until nothing is loading or computing, and one more frame was drawn."""
        self.tab.wait_for_function(_SETTLED)
        self.tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 60)))")
        return self

    def watch_first_row(self) -> None:
        """Note, in every page opened from now on, when its frame and its first row were there."""
        self.tab.add_init_script(f"({_WATCH})()")

    def parts_of_first_row(self) -> str:
        """What the time to the first row went into, by the browser's own clock, which starts with the navigation."""
        self.tab.wait_for_function("() => window.seen.row")
        parts = self.tab.evaluate(_PARTS)
        times = ", ".join(f"{name} {ms / 1000:.2f}" for name, ms in parts["ms"].items())
        return f"{times} s after navigation; {parts['files']} files"

    def text(self, selector: str) -> str:
        """What a person reads there."""
        return self.tab.locator(selector).first.inner_text()

    def sideways(self) -> int:
        """Pixels by which the page, or the window, can be moved sideways."""
        return max(self.tab.evaluate(_SIDEWAYS))

    def violations(self, axe: str) -> list[str]:
        """What axe-core finds; handed over by the debugger, so that the content security policy stays as it is."""
        if not self.tab.evaluate("() => 'axe' in window"):
            self.tab.evaluate(axe)
        return self.tab.evaluate(_RULES)

    def flip_theme(self) -> None:
        """From light to dark or back, by its key."""
        self.tab.keyboard.press("d")
        self.theme = "dark" if self.theme == "light" else "light"
        self.tab.wait_for_function("(theme) => document.documentElement.dataset.theme === theme", arg=self.theme)

    def dress(self, width: int, theme: str) -> None:
        """Another width and theme while all that is open stays open: keys are for what is on top."""
        self.tab.set_viewport_size({"width": width, "height": 900})
        self.tab.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
        self.width, self.theme = width, theme
        self.tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def shoot(self, name: str) -> None:
        """Keep a picture of it."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.tab.screenshot(path=SHOTS / f"{name}-{self.width}-{self.theme}.png")

    def close(self) -> None:
        """Close the tab."""
        self._context.close()
