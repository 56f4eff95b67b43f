"""The files of the dashboard: all of them shipped, none asks for anything outside, the preload list is the truth."""

import re
import tomllib
from pathlib import Path

import pytest
from setuptools import Distribution

from model_checkpoint.api.pages.joined_pages import join_pages
from model_checkpoint.api.pages.page_files import read_pages

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "src/model_checkpoint/api/web"
OWN = [path for path in sorted(WEB.rglob("*")) if path.is_file() and "vendor" not in path.parts]
MODULES = [path for path in OWN if path.suffix == ".js" and path.name != "early.js"]
_IMPORT = re.compile(r"^(?:import|export)\b[^;]*?from '([^']+)';|^import '([^']+)';", re.MULTILINE)


def imports_of(module):
    return [(module.parent / (one or other)).resolve() for one, other in _IMPORT.findall(module.read_text())]


def closure(starts):
    seen, left = set(), list(starts)
    while left:
        module = left.pop()
        if module not in seen:
            seen.add(module)
            left += imports_of(module)
    return seen


def test_every_import_leads_to_a_file():
    assert [one for module in MODULES for one in imports_of(module) if not one.is_file()] == []


def test_the_preload_list_is_what_the_first_view_imports():
    pages = join_pages(read_pages(WEB))
    page, app = pages["/index.html"].content.decode(), pages["/js/app.js"].content.decode()
    listed = re.findall(r'rel="modulepreload" href="([^"]+)"', page)
    imported = re.findall(r"^import [^;']*'\.\.([^']+)';", app, re.MULTILINE)
    first = {f"/{one.relative_to(WEB)}" for one in closure([WEB / "js/app.js", WEB / "js/pages/runs.js"])}

    assert listed == imported == ["/vendor/preact-htm.js"]
    assert {*re.findall(r"^\$own\['([^']+)'\]", app, re.MULTILINE)} == first - {*listed}


def test_the_first_view_asks_for_few_files():
    page = join_pages(read_pages(WEB))["/index.html"].content.decode()
    sheets = join_pages(read_pages(WEB))["/css/joined.css"].content

    assert len(re.findall(r'(?:href|src)="/', page)) == 5
    assert all(one.read_bytes() in sheets for one in [*WEB.glob("css/*.css"), WEB / "vendor/uplot.css"])
    assert not re.search(rb"url\(|@import|@charset", sheets)  # would mean something else in another file


def test_every_module_is_reached():
    pages = closure([WEB / "js/app.js", *(WEB / "js/pages").rglob("*.js")])
    opened = re.findall(r"import\('\.\./([^']+)'\)", (WEB / "js/frame/pages.js").read_text())

    assert set(MODULES) <= pages
    assert closure([WEB / "js/app.js", *(WEB / "js" / one for one in opened)]) >= set(MODULES)


def test_a_wheel_has_every_file(monkeypatch):
    monkeypatch.chdir(ROOT)
    settings = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["setuptools"]
    told = {"packages": ["model_checkpoint"], "package_dir": {"": "src"}, "package_data": settings["package-data"]}
    maker = Distribution(told).get_command_obj("build_py")
    maker.ensure_finalized()
    shipped = {Path(folder, one) for _, folder, _, names in maker.data_files for one in names}

    assert {path.relative_to(ROOT) for path in WEB.rglob("*") if path.is_file()} <= shipped


@pytest.mark.parametrize("path", OWN, ids=lambda path: str(path.relative_to(WEB)))
def test_a_file_is_short_and_asks_for_nothing_outside(path):
    text = path.read_text(encoding="utf-8")

    assert set(re.findall(r"https?://[^\s\"']*", text)) <= {"http://www.w3.org/2000/svg"}  # a name, never asked for
    assert len(text.splitlines()) < (600 if path.suffix == ".css" else 400)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    assert not re.search(r"<script>|<style|\sstyle=\"|\son\w+=\"", text)  # nothing a strict policy would refuse


def test_the_map_names_every_module():
    told = (WEB / "README.md").read_text()

    assert [path.name for path in MODULES if f"`{path.name}`" not in told] == []
    assert [
        folder.name for folder in (WEB / "js").rglob("*") if folder.is_dir() and len(list(folder.glob("*.js"))) > 13
    ] == []


def test_the_kit_shows_every_component_that_pages_are_made_of():
    """But for what is never alone: a dialog is seen in those that ask, the sign of the house in the rail."""
    shared = [*(WEB / "js/ui").glob("*.js"), *(WEB / "js/table").glob("*.js"), WEB / "js/chart/chart.js"]
    made = {
        one
        for path in shared
        for one in re.findall(r"^export (?:const|function) ([A-Z][a-z]\w*)", path.read_text(), re.M)
    }
    shown = set(re.findall(r"<\$\{(\w+)\}", (WEB / "js/pages/kit.js").read_text()))

    assert made - shown == {"Dialog", "Logo"}
    assert shown >= {"Job", "SaveTimeline"}


def test_what_is_not_ours_has_its_licence_beside_it():
    told = (WEB / "vendor/README.md").read_text()
    files = [path.name for path in (WEB / "vendor").iterdir() if path.suffix in (".js", ".css")]

    assert [name for name in files if f"`{name}`" not in told] == []
    assert {path.name for path in (WEB / "vendor").glob("LICENSE-*")} == set(re.findall(r"`(LICENSE-\w+\.txt)`", told))
