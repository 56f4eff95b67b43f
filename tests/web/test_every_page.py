"""Every page at three widths in both themes, against 200 runs, 10,000 checkpoints and 2 million points."""

import time

import pytest
from tests.web.visitor import Visitor

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


def test_the_first_view_shows_its_rows_and_ten_thousand_stay_few_in_the_document(served, visit):
    for kind in ("first", "again, in another context of the same browser"):  # the first one also starts the browser up
        visitor = visit(served)
        visitor.watch_first_row()
        began = time.perf_counter()
        visitor.open("/runs")
        visitor.tab.wait_for_selector("tr.r")
        seen = time.perf_counter() - began
        print(f"\n{kind}: {visitor.parts_of_first_row()}; seen by the driver after {seen:.2f} s")
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
