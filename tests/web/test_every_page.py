"""Every page at three widths in both themes, against 200 runs, 10,000 checkpoints and 2 million points."""

import sqlite3
import statistics
import time
from contextlib import closing

import pytest
from tests.web.conftest import serving
from tests.web.visitor import Visitor

from model_checkpoint.database import EnhancedDatabaseConnection, Metric

pytestmark = pytest.mark.slow


def routes_of(big):
    """A name and a route for each page and tab."""
    first, damaged, third, last = big.real_checkpoints
    return {
        "runs": "/runs",
        "run": f"/run/{big.alive}",
        "run-checkpoints": f"/run/{big.alive}/checkpoints",
        "run-config": f"/run/{big.alive}/config",
        "run-saves": f"/run/{big.alive}/saves",
        "run-memory": f"/run/{big.real}/memory",
        "run-loss-scale": f"/run/{big.real}/lossscale",
        "checkpoints": "/checkpoints",
        "checkpoint": f"/checkpoint/{third}",
        "checkpoint-damaged": f"/checkpoint/{damaged}?tab=files",
        "compare": f"/compare?runs={big.alive},{big.stalled},run0025,run0050,run0075&smooth=0.6",
        "diff": f"/diff?a={first}&b={last}",
        "storage": "/storage",
        "integrity": "/integrity",
        "lineage": "/lineage",
        "saves": "/saves",
        "kit": "/kit",
    }


@pytest.mark.parametrize("width", [360, 1280, 1920])
def test_every_page_fits_answers_in_figures_and_can_be_used_by_all(served, big, browser, axe, width):
    visitor = Visitor(browser, served, width=width).open("/runs").settle()
    wrongs: list[str] = []
    for name, route in routes_of(big).items():
        visitor.go(route).settle()
        if visitor.sideways() > 0:
            wrongs.append(f"{name}: can be moved sideways by {visitor.sideways()} px")
        if not any(letter.isdigit() for letter in visitor.text(".answer")):
            wrongs.append(f"{name}: its sentence has no figure: {visitor.text('.answer')}")
        wrongs += [f"{name}, light: {one}" for one in visitor.violations(axe)]
        visitor.shoot(name)
        visitor.flip_theme()
        wrongs += [f"{name}, dark: {one}" for one in visitor.violations(axe)]
        visitor.shoot(name)
        visitor.flip_theme()
    visitor.close()

    assert not wrongs
    assert not visitor.wrongs


def test_the_first_view_shows_its_rows_and_ten_thousand_stay_few_in_the_document(served, visit, tell_figure):
    for kind in ("first", "again, in another context of the same browser"):  # the first one also starts the browser up
        visitor = visit(served)
        visitor.watch_first_row()
        began = time.perf_counter()
        visitor.open("/runs")
        visitor.tab.wait_for_selector("tr.r")
        seen = time.perf_counter() - began
        tell_figure(f"first view, {kind}: {visitor.parts_of_first_row()}; seen by the driver after", seen)
    visitor.settle()
    asked_for = [url for url in visitor.asked if "/api/" not in url]
    assert len(asked_for) == 6  # the page, its icon, one early script, one sheet, two modules
    assert sum("/api/runs?" in url for url in visitor.asked) == 1  # what was asked early is not asked again

    visitor.go("/checkpoints").settle()
    for _ in range(3):
        before = visitor.tab.locator(".main").evaluate(
            "(main) => { main.scrollTop = main.scrollHeight; return main.scrollHeight; }"
        )
        visitor.tab.wait_for_function("(old) => document.querySelector('.main').scrollHeight > old", arg=before)

    assert visitor.tab.locator("tr.r").count() < 100
    assert visitor.tab.locator("table").get_attribute("aria-rowcount") == "10005"
    assert sum("cursor=" in url for url in visitor.asked) >= 3


def test_on_the_large_catalog_a_point_is_soon_on_the_page(big, tmp_path, visit, tell_figure):
    """On the page of its run and in its row of the list; how soon is printed, since the machine decides that."""
    copy = tmp_path / "runs" / "experiments.db"
    copy.parent.mkdir()
    with closing(sqlite3.connect(big.folder / "experiments.db")) as old, closing(sqlite3.connect(copy)) as new:
        old.backup(new)
    took: dict[str, list[float]] = {"run page": [], "row of the list": []}
    with (
        serving([str(copy.parent)], tmp_path / "cache") as address,
        EnhancedDatabaseConnection(f"sqlite:///{copy}") as catalog,
    ):
        page = visit(address).open(f"/run/{big.alive}").settle()
        rows = visit(address).open("/runs?q=status%3Aalive").settle()
        shown = {
            "run page": page.tab.locator(".legend tr", has_text="val_loss").locator("td.v").first,
            "row of the list": rows.tab.locator("tr.r", has=rows.tab.locator(f"a[href*='{big.alive}']")).first,
        }
        step = catalog.summaries(big.alive)[0].last_step
        for turn in range(1, 6):
            value = 0.5 - turn / 1000  # the best so far, and as such in the row
            written = time.perf_counter()
            catalog.save_metric(Metric(big.alive, "val_loss", value, step + turn))
            for where, place in shown.items():
                place.get_by_text(f"{value:g}", exact=True).first.wait_for()
                took[where].append(time.perf_counter() - written)

    for where, some in took.items():
        tell_figure(f"live on the large catalog, {where}, median of {len(some)}", statistics.median(some))
        tell_figure(f"live on the large catalog, {where}, worst", max(some))
