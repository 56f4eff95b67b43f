"""Pages with nothing on them, and what opens above pages: people who cannot see or point can use them all."""

import pytest
from tests.ground.big_catalog import build_catalog
from tests.web.conftest import serving

pytestmark = pytest.mark.slow

EMPTY = ("runs", "checkpoints", "compare", "diff", "storage", "integrity", "lineage", "saves")


CUT_OFF = """(all) => all.map((one) => one.getBoundingClientRect())
  .filter((box) => box.left < 0 || box.right > innerWidth).length"""
LOOKS = [(width, theme) for width in (360, 1280, 1920) for theme in ("light", "dark")]


def in_every_look(visitor, axe, name):
    """What axe finds at three widths in light and in dark, and what can be moved sideways; with a picture of each."""
    found = []
    for width, theme in LOOKS:
        visitor.dress(width, theme)
        found += [f"{name}, {width}, {theme}: {one}" for one in visitor.violations(axe)]
        found += [f"{name}, {width}: can be moved sideways"] * (visitor.sideways() > 0)
        found += [f"{name}, {width}: a menu is cut off"] * visitor.tab.locator(".menu").evaluate_all(CUT_OFF)
        visitor.shoot(name)
    visitor.dress(1280, "light")
    return found


def test_every_page_of_an_empty_folder_says_what_to_do(tmp_path, visit, axe):
    (tmp_path / "runs").mkdir()
    wrongs = []
    with serving([str(tmp_path / "runs")], tmp_path / "cache") as address:
        visitor = visit(address).open("/runs").settle()
        for name in EMPTY:
            visitor.go(f"/{name}").settle()
            wrongs += in_every_look(visitor, axe, f"empty-{name}")
            if len(visitor.text(".answer")) < 20:
                wrongs.append(f"{name}: says nothing")
            if any(word in visitor.text(".main") for word in ("undefined", "NaN", "Infinity", "null")):
                wrongs.append(f"{name}: {visitor.text('.main')}")

    assert not wrongs


def test_a_path_without_a_place_to_break_stays_within_a_phone(tmp_path, visit):
    built = build_catalog(tmp_path / ("long" * 40), runs=2, checkpoints=20, points=600)
    with serving([str(built.folder)], tmp_path / "cache") as address:
        visitor = visit(address).open("/runs").settle()
        visitor.dress(360, "light")
        for name in EMPTY:
            visitor.go(f"/{name}").settle()

            assert visitor.sideways() == 0, name


def test_what_is_not_here_is_told_with_a_way_back(tmp_path, visit, axe):
    (tmp_path / "runs").mkdir()
    with serving([str(tmp_path / "runs")], tmp_path / "cache") as address:
        visitor = visit(address)
        visitor.expected = ("404",)
        visitor.open("/run/nobody").settle()
        wrongs = in_every_look(visitor, axe, "missing-run")
        visitor.go("/checkpoint/nothing")
        visitor.tab.get_by_role("alert").wait_for()

        assert not wrongs
        assert visitor.tab.locator(".main .blank a.btn").count() == 1


def test_dialogs_menus_palette_and_trash_can_be_used_by_all(small, tmp_path, visit, axe):
    wrongs = []
    with serving([str(small.folder)], tmp_path / "cache") as address:
        visitor = visit(address).open(f"/checkpoint/{small.real_checkpoints[0]}").settle()
        tab = visitor.tab
        tab.get_by_role("button", name="More").click()
        wrongs += in_every_look(visitor, axe, "open-menu")
        tab.get_by_role("button", name="Tags").click()
        tab.locator("dialog[open] input").wait_for()
        wrongs += in_every_look(visitor, axe, "open-tags")
        tab.keyboard.press("Escape")
        tab.get_by_role("button", name="More").click()
        tab.get_by_role("button", name="Move to trash").click()
        tab.locator("dialog[open] code").wait_for()
        wrongs += in_every_look(visitor, axe, "open-dialog")
        tab.locator("dialog[open]").get_by_role("button", name="Move to trash").click()
        tab.get_by_text("1 checkpoint moved to trash").wait_for()
        tab.keyboard.press("Control+k")
        tab.locator("dialog.palette[open]").wait_for()
        wrongs += in_every_look(visitor, axe, "open-palette")
        tab.keyboard.press("Escape")
        tab.locator("dialog").wait_for(state="detached")  # whose field would take the key
        tab.keyboard.press("?")
        tab.locator("dialog[open] kbd").first.wait_for()
        wrongs += in_every_look(visitor, axe, "open-help")
        tab.keyboard.press("Escape")
        visitor.go("/runs").settle()
        tab.get_by_role("button", name="Columns").click()
        wrongs += in_every_look(visitor, axe, "open-columns")
        visitor.go("/storage").settle()
        tab.get_by_role("button", name="Jobs").click()
        wrongs += in_every_look(visitor, axe, "open-jobs")
        tab.keyboard.press("Escape")
        tab.get_by_role("button", name="Trash 1").click()
        tab.get_by_role("button", name="Restore all").wait_for()
        wrongs += in_every_look(visitor, axe, "open-trash")

    assert not wrongs


def test_the_question_for_a_token_can_be_used_by_all(tmp_path, visit, axe):
    (tmp_path / "runs").mkdir()
    with serving([str(tmp_path / "runs")], tmp_path / "cache") as address:
        visitor = visit(address, token=None)
        visitor.expected = ("401",)
        visitor.open("/runs")
        visitor.tab.get_by_label("Token or address").wait_for()

        assert not in_every_look(visitor, axe, "gate")
