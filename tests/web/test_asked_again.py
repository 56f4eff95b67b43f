"""A question that failed by what passes is asked again, so that no page stays behind what it was told of."""

from __future__ import annotations

import dataclasses
import re

import pytest
from tests.web.conftest import add_point, serving

from model_checkpoint.database import EnhancedDatabaseConnection

pytestmark = pytest.mark.slow


def fail_once(visitor, pattern) -> list[str]:
    """Let the next question of that form fail as a server that is overwhelmed does; gives what was refused."""
    refused: list[str] = []
    visitor.expected = ("503",)

    def answer(route):
        if refused:
            route.continue_()
        else:
            refused.append(route.request.url)
            route.fulfill(status=503, content_type="application/json", body='{"error": "not now"}')

    visitor.tab.route(re.compile(pattern), answer)
    return refused


def test_a_row_that_could_not_be_asked_for_comes_a_moment_later(small, tmp_path, visit):
    with serving([str(small.folder)], tmp_path / "cache") as address:
        visitor = visit(address).open("/runs").settle()
        refused = fail_once(visitor, r"/api/runs\?ids=")
        add_point(small)
        visitor.tab.locator("tr.r", has_text="baseline-0").get_by_text("0.1234").wait_for()

        assert refused


def test_a_run_that_lineage_could_not_ask_for_comes_a_moment_later(small, tmp_path, visit):
    with serving([str(small.folder)], tmp_path / "cache") as address, EnhancedDatabaseConnection(small.url) as database:
        run = database.get_experiment(small.alive)
        visitor = visit(address).open(f"/lineage?all=1&exp={run.project_name}").settle()
        refused = fail_once(visitor, r"/api/lineage\?ids=")
        database.save_experiment(
            dataclasses.replace(run, id="new-run", name="brand-new", start_time=run.start_time + 1)
        )
        visitor.tab.locator("svg").get_by_text("brand-new").wait_for()

        assert refused


def test_points_that_could_not_be_asked_for_leave_no_gap_in_the_curve(small, tmp_path, visit):
    with serving([str(small.folder)], tmp_path / "cache") as address:
        visitor = visit(address).open(f"/run/{small.alive}").settle()
        visitor.tab.locator("canvas").first.wait_for()
        refused = fail_once(visitor, r"/api/runs/series\?.*since=")
        with visitor.tab.expect_response(lambda one: "since=" in one.url and one.ok) as came:
            add_point(small)

        assert refused
        assert "since=" in came.value.url
        assert _since(came.value.url) <= _since(refused[0])


def _since(url: str) -> int:
    return int(re.search(r"since=(\d+)", url)[1])
