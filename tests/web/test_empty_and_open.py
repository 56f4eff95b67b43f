"""Pages with nothing on them, and what opens above pages: people who cannot see or point can use them all."""

import pytest
from tests.web.conftest import serving

pytestmark = pytest.mark.slow

EMPTY = ("runs", "checkpoints", "compare", "diff", "storage", "integrity", "lineage", "saves")


def in_both_themes(visitor, axe, name):
    """What axe finds in light and in dark, with a picture of each."""
    found = []
    for _ in range(2):
        found += [f"{name}, {visitor.width}, {visitor.theme}: {one}" for one in visitor.violations(axe)]
        visitor.shoot(name)
        visitor.flip_theme()
    return found


@pytest.mark.parametrize("width", [360, 1280])
def test_every_page_of_an_empty_folder_says_what_to_do(tmp_path, visit, axe, width):
    (tmp_path / "runs").mkdir()
    wrongs = []
    with serving([str(tmp_path / "runs")], tmp_path / "cache") as address:
        visitor = visit(address, width=width).open("/runs").settle()
        for name in EMPTY:
            visitor.go(f"/{name}").settle()
            wrongs += in_both_themes(visitor, axe, f"empty-{name}")
            if len(visitor.text(".answer")) < 20:
                wrongs.append(f"{name}: says nothing")
            if any(word in visitor.text(".main") for word in ("undefined", "NaN", "Infinity", "null")):
                wrongs.append(f"{name}: {visitor.text('.main')}")
            if visitor.sideways() > 0:
                wrongs.append(f"{name}: can be moved sideways")

    assert not wrongs


def test_what_is_not_here_is_told_with_a_way_back(tmp_path, visit, axe):
    (tmp_path / "runs").mkdir()
    with serving([str(tmp_path / "runs")], tmp_path / "cache") as address:
        visitor = visit(address)
        visitor.expected = ("404",)
        visitor.open("/run/nobody").settle()
        wrongs = in_both_themes(visitor, axe, "missing-run")
        visitor.go("/checkpoint/nothing")
        visitor.tab.get_by_role("alert").wait_for()

        assert not wrongs
        assert visitor.tab.locator(".main .blank a.btn").count() == 1


@pytest.mark.parametrize("width", [360, 1280])
def test_dialogs_menus_palette_and_trash_can_be_used_by_all(small, tmp_path, visit, axe, width):
    wrongs = []
    with serving([str(small.folder)], tmp_path / "cache") as address:
        visitor = visit(address, width=width).open(f"/checkpoint/{small.real_checkpoints[0]}").settle()
        tab = visitor.tab
        tab.get_by_role("button", name="More").click()
        wrongs += visitor.violations(axe)
        visitor.shoot("open-menu")
        tab.get_by_role("button", name="Move to trash").click()
        tab.locator("dialog[open] code").wait_for()
        wrongs += visitor.violations(axe)
        visitor.shoot("open-dialog")
        tab.locator("dialog[open]").get_by_role("button", name="Move to trash").click()
        tab.get_by_text("1 checkpoint moved to trash").wait_for()
        tab.keyboard.press("Control+k")
        tab.locator("dialog.palette[open]").wait_for()
        wrongs += visitor.violations(axe)
        tab.keyboard.press("Escape")
        visitor.go("/storage").settle()
        tab.get_by_role("button", name="Trash 1").click()
        tab.get_by_role("button", name="Restore all").wait_for()
        wrongs += in_both_themes(visitor, axe, "open-trash")

    assert not wrongs
