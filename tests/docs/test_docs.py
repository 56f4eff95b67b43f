"""The documentation is true: its code runs, its links lead somewhere, the classes it says are here can be imported."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
OPENING = re.compile(r"^runs/\S+: (a new run|resumed at step ).*\n", re.MULTILINE)  # what a run says of itself


def name(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=name)
def test_the_code_of_a_page_runs_from_top_to_bottom_in_an_empty_folder(page, tmp_path):
    code = "\n".join(BLOCK.findall(page.read_text()))

    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, OPENING.sub("", done.stderr)) == (0, "", "")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_to_a_file(page):
    targets = [target for target in LINK.findall(page.read_text()) if "://" not in target]

    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()

    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f": {page}\n" not in navigation] == []


@pytest.mark.parametrize("trainer", ["huggingface", "lightning", "accelerate", "keras"])
def test_a_trainer_needs_one_to_three_lines_more(trainer):
    first = BLOCK.search((ROOT / "docs" / f"{trainer}.md").read_text())[1]

    more = [line for line in first.splitlines() if re.search(r"# (.*added|was)\b", line)]
    assert 1 <= len(more) <= 3


def rows():
    for line in (ROOT / "docs" / "classes.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            yield cells


@pytest.mark.parametrize("row", [row for row in rows() if row[2] == "here"], ids=lambda row: row[0].split("`")[1])
def test_every_class_that_is_here_can_be_imported_from_its_module(row):
    classes, module, _ = row
    home = importlib.import_module(re.search(r"`([\w.]+)`", module)[1])

    for class_name in re.findall(r"`(\w+)`", classes):
        assert isinstance(getattr(home, class_name), type)


@pytest.mark.parametrize("row", [row for row in rows() if row[2].startswith("here,")], ids=lambda row: row[0])
def test_what_stands_in_for_a_class_can_be_imported(row):
    for path in re.findall(r"`(model_checkpoint[\w.]+)`", row[1]):
        home, _, thing = path.rpartition(".")
        try:
            importlib.import_module(path)
        except ImportError:
            assert getattr(importlib.import_module(home), thing) is not None


def test_the_table_names_only_what_is_here():
    assert {row[2].partition(",")[0] for row in rows()} == {"here"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_module_a_page_names_is_there(page):
    package = ROOT / "src" / "model_checkpoint"
    named = re.findall(r"`((?:[a-z_0-9]+/)+[a-z_0-9]+\.py)`", page.read_text())

    assert [path for path in named if not any(package.rglob(path)) and not (ROOT / path).exists()] == []


def test_every_argument_of_load_is_documented():
    import inspect

    import model_checkpoint as mc

    text = (ROOT / "docs" / "saving.md").read_text()
    missing = [word for word in inspect.signature(mc.load).parameters if f"{word}=" not in text]
    assert set(missing) <= {"root", "progress", "name"}
