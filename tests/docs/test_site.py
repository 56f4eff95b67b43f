"""The site is whole: every public name has its place in the reference, and nothing is asked of anybody outside."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = {page.stem: page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md")}
TOLD = re.compile(r"^::: (model_checkpoint[\w.]*)\.(\w+)$", re.MULTILINE)
OUTSIDE = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//")


def door(room):
    return importlib.import_module("model_checkpoint" if room == "model_checkpoint" else f"model_checkpoint.{room}")


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_what_the_reference_tells_of_can_be_imported(room):
    told = TOLD.findall(ROOMS[room])

    assert told
    assert [f"{home}.{name}" for home, name in told if not hasattr(importlib.import_module(home), name)] == []
    assert len(set(told)) == len(told)


@pytest.mark.parametrize("room", sorted(room for room in ROOMS if getattr(door(room), "__all__", None)))
def test_every_public_name_of_a_room_is_in_its_reference(room):
    """A name that another page describes is named in the introduction, with a link to that page."""
    told = {name for _, name in TOLD.findall(ROOMS[room])} | set(re.findall(r"`(\w+)`", ROOMS[room]))

    assert {name for name in door(room).__all__ if not name.startswith("_")} - told == set()


def test_every_test_a_guarantee_names_is_there():
    named = re.findall(r"`(tests/[\w/]+\.py)`", (ROOT / "docs" / "guarantees.md").read_text())

    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_count_of_the_guarantees_stands_in_the_proof():
    proof = (ROOT / "docs" / "proof.md").read_text()
    counts = re.findall(r"\b\d+ of (?:40|200)\b", (ROOT / "docs" / "guarantees.md").read_text())

    assert counts
    assert [count for count in counts if count not in proof] == []


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_outside(tmp_path):
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]

    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)

    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert done.returncode == 0, done.stderr
    assert len(pages) > 40
    assert [str(page) for page in pages if OUTSIDE.search(page.read_text())] == []
