"""Modules sent as one file do in a real browser what they do one by one, in the same order."""

import pytest

from model_checkpoint.api.pages.module_joiner import join_modules

pytestmark = pytest.mark.slow

PLACE = "http://127.0.0.1:9"
APART = {
    "/index.html": '<!doctype html><script type="module" src="/js/app.js"></script>',
    "/vendor/log.js": """window.log = [];
export default (word) => log.push(word);
export const size = () => log.length;
""",
}
MODULES = {
    "/js/app.js": """import say from '../vendor/log.js';
import { top, later as bottom } from './lib/top.js';
import './lib/alone.js';

say('app ' + top() + bottom);
import('./first.js').then(async (page) => {
  say('first ' + page.default());
  say('second ' + (await import('./second.js')).default());
  say('end');
});
""",
    "/js/lib/top.js": """import say from '../../vendor/log.js';
import { count } from './count.js';
say('top');
export const later = ' 7 ';
export function top() {
  return 'top ' + count();
}
""",
    "/js/lib/count.js": """import say from '../../vendor/log.js';
import { size } from '../../vendor/log.js';
say('count');
let n = 0;
export const count = () => `${++n} of ${size() > 0}`;
""",
    "/js/lib/alone.js": "import say from '../../vendor/log.js';\nsay('alone');\n",
    "/js/lib/shared.js": "import say from '../../vendor/log.js';\nsay('shared');\nexport const shared = { n: 0 };\n",
    "/js/first.js": """import say from '../vendor/log.js';
import { shared } from './lib/shared.js';
import { count } from './lib/count.js';
say('first is here');
export default function First() {
  shared.n += 1;
  return `${count()} ${shared.n}`;
}
""",
    "/js/second.js": """import { shared } from './lib/shared.js';
import { count } from './lib/count.js';
export default function Second() {
  return `${count()} ${++shared.n}`;
}
""",
}


def told(browser, files):
    """What the page tells, and how often it asked."""
    tab = browser.new_page()
    asked = []

    def answer(route):
        path = route.request.url.removeprefix(PLACE)
        asked.append(path)
        kind = "text/javascript" if path.endswith(".js") else "text/html"
        route.fulfill(body=files.get(path, ""), content_type=kind, status=200 if path in files else 404)

    tab.route("**/*", answer)
    tab.goto(f"{PLACE}/index.html")
    tab.wait_for_function("() => window.log?.includes('end')")
    words = tab.evaluate("() => window.log")
    tab.close()
    return words, [path for path in asked if path.startswith("/js/")]


@pytest.mark.parametrize("along", [[], ["/js/first.js"]], ids=["pages apart", "a page along"])
def test_what_is_joined_runs_as_if_it_were_not(browser, along):
    one_by_one, many = told(browser, {**APART, **MODULES})
    sent = {path: one.text for path, one in join_modules(MODULES, "/js/app.js", along).items()}

    joined, few = told(browser, {**APART, **sent})

    assert joined == one_by_one
    assert joined[:3] == ["count", "top", "alone"]
    assert len(many) == 7
    assert len(few) == 3 - len(along)
