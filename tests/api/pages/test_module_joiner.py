"""Joined modules: one file for many, each module run once, and no form that would change its meaning."""

import re

import pytest

from model_checkpoint.api.pages.module_joiner import ModuleUnjoinable, join_modules

MODULES = {
    "/js/app.js": """import { a } from './lib/a.js';
import './lib/b.js';
a(import('./page.js'), import('./other.js'));
""",
    "/js/lib/a.js": "import { b as other } from './b.js';\nexport const a = () => other;\n",
    "/js/lib/b.js": "export async function b() {}\n",
    "/js/lib/c.js": "import x from '../../vendor/x.js';\nimport { b } from './b.js';\nexport const c = [x, b];\n",
    "/js/page.js": "import { c } from './lib/c.js';\nexport default function Page() { return c; }\n",
    "/js/other.js": "import { b } from './lib/b.js';\nexport default function Other() { return b; }\n",
}


def members(text):
    return re.findall(r"^\$own\['([^']+)'\]", text, re.MULTILINE)


def test_a_file_has_what_the_entry_imports_each_behind_what_it_needs():
    sent = join_modules(MODULES, "/js/app.js")

    assert members(sent["/js/app.js"].text) == ["/js/lib/b.js", "/js/lib/a.js", "/js/app.js"]
    assert sent["/js/app.js"].imports == ()
    assert "const { b: other } = $take('/js/lib/b.js');" in sent["/js/app.js"].text


def test_a_page_brings_only_what_the_first_file_has_not():
    sent = join_modules(MODULES, "/js/app.js")

    assert members(sent["/js/page.js"].text) == ["/js/lib/c.js", "/js/page.js"]
    assert sent["/js/page.js"].imports == ("/vendor/x.js",)
    assert "import * as $apart0 from '../vendor/x.js';" in sent["/js/page.js"].text
    assert "import { $own, $take } from './app.js';" in sent["/js/page.js"].text
    assert members(sent["/js/other.js"].text) == ["/js/other.js"]


def test_a_page_that_comes_along_is_no_file_of_its_own():
    sent = join_modules(MODULES, "/js/app.js", ["/js/page.js"])

    assert sorted(sent) == ["/js/app.js", "/js/other.js"]
    assert "$later('/js/page.js')" in sent["/js/app.js"].text
    assert "import('./other.js')" in sent["/js/app.js"].text


@pytest.mark.parametrize(
    "line",
    [
        "import * as all from './lib/b.js';",
        "export { b } from './lib/b.js';",
        "export let count = 0;",
        "export const { a, b } = all;",
        "export default 7;",
        "await ready;",
        "const here = import.meta.url;",
        "const late = import(name);",
        "const $take = 1;",
        "import { b } from 'b';",
    ],
)
def test_a_form_that_it_does_not_know_is_refused(line):
    with pytest.raises(ModuleUnjoinable, match=re.escape("/js/app.js: ")):
        join_modules({**MODULES, "/js/app.js": f"{line}\n"}, "/js/app.js")


def test_what_nobody_exports_is_missed_before_it_is_sent():
    with pytest.raises(ModuleUnjoinable, match=re.escape("/js/lib/a.js: /js/lib/b.js does not export other.")):
        join_modules({**MODULES, "/js/lib/a.js": "import { other } from './b.js';\n"}, "/js/app.js")


def test_a_circle_is_refused():
    around = {**MODULES, "/js/lib/b.js": "import { a } from './a.js';\nexport const b = () => a;\n"}

    with pytest.raises(ModuleUnjoinable, match="imports itself by way of others"):
        join_modules(around, "/js/app.js")
