"""What the pages say is so: sentences, verdicts, legends and commands, held against what really happened."""

import re
import shlex
import sqlite3
import time

import numpy as np
import pytest
from tests.ground.big_catalog import build_catalog
from tests.web.conftest import add_point, serving
from typer.testing import CliRunner

import model_checkpoint as mc
from model_checkpoint.cli.app import app
from model_checkpoint.database import EnhancedDatabaseConnection, Experiment, LineageEdge, Metric

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path):
    """A folder with a catalog to be, and its address."""
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder, f"sqlite:///{folder}/experiments.db"


def manager_of(run, folder):
    return mc.EnhancedCheckpointManager(run, folder / "root", max_checkpoints=None)


def test_a_living_run_without_a_checkpoint_is_not_called_safe(place, tmp_path, visit):
    folder, url = place
    with (
        mc.ExperimentTracker("first", "a", database_url=url) as first,
        mc.ExperimentTracker("second", "a", database_url=url) as second,
        serving([str(folder)], tmp_path / "cache") as address,
    ):
        first.log_metrics({"loss": 1.0}, step=1)
        second.log_metrics({"loss": 1.0}, step=1)
        first.flush(), second.flush()
        visitor = visit(address).open("/runs").settle()
        said = [visitor.text(".answer")]
        for run, words in ((first, "1 of them has no safe"), (second, "every one of them can resume")):
            with mc.EnhancedCheckpointManager(run, folder / run.experiment.name) as manager:
                manager.save_checkpoint({"w": np.zeros(4)}, step=1)
            visitor.tab.locator(".answer").get_by_text(words).wait_for()  # by itself, as it happens
            said.append(visitor.text(".answer"))

    assert said[0].startswith("2 alive, 0 stalled, 0 dead; none of them has a safe checkpoint.")


def test_a_run_that_dies_under_the_eyes_of_a_reader_is_called_dead_and_its_risk_grows_till_then(place, tmp_path, visit):
    folder, url = place
    with EnhancedDatabaseConnection(url) as connection:
        run = connection.save_experiment(Experiment(id="r1", name="mine", start_time=time.time() - 30))
        connection.heartbeat(run.id, step=5)
        with serving([str(folder)], tmp_path / "cache") as address:
            lines = visit(address).open("/runs").settle()
            page = visit(address).open("/run/r1").settle()
            risk = lines.tab.locator("tr.r td").filter(has_text=re.compile(r"^\d+ s$"))
            said = risk.inner_text()
            lines.tab.wait_for_function(
                "(said) => ![...document.querySelectorAll('tr.r td')].some((cell) => cell.innerText === said)", arg=said
            )
            grown = risk.inner_text()
            with sqlite3.connect(folder / "experiments.db") as database:
                database.execute("UPDATE heartbeats SET last_seen = last_seen - 58")
            database.close()
            asked = len(page.asked)
            for visitor, where in ((lines, "tr.r"), (page, "h1")):
                visitor.tab.locator(where).get_by_text("dead").wait_for()
            page.shoot("run-died")

    assert int(grown.split()[0]) > int(said.split()[0])
    assert "It has no safe checkpoint" in lines.text(".note-bar")
    assert [url for url in page.asked[asked:] if "/api/runs/r1" in url]


def test_a_filtered_list_drops_and_takes_up_runs_without_being_fetched_anew(small, tmp_path, visit):
    with serving([str(small.folder)], tmp_path / "cache") as address, EnhancedDatabaseConnection(small.url) as database:
        visitor = visit(address).open("/runs?q=tag%3Agold").settle()
        tab, asked = visitor.tab, len(visitor.asked)
        tab.get_by_text("No run matches").wait_for()
        database.update_experiment(small.alive, tags=["gold"])
        database.update_experiment(small.dead, tags=["gold"])
        tab.locator("tr.r").nth(1).wait_for()
        order = [row.split("\n")[0] for row in tab.locator("tr.r").all_inner_texts()]
        database.update_experiment(small.alive, tags=[])
        database.update_experiment(small.stalled, notes="not of this list")
        tab.get_by_text(f"1 of {small.runs} runs").wait_for()
        left = tab.locator("tr.r").all_inner_texts()
        names = [database.get_experiment(one).name for one in (small.dead, small.alive)]
        lists = [url for url in visitor.asked[asked:] if "/api/runs?" in url]

    assert [one.split()[0] for one in order] == names  # the dead first, as the list is sorted
    assert len(left) == 1
    assert lists
    assert all("ids=" in url and "q=tag" in url for url in lists)


def test_a_comparison_follows_its_runs_and_asks_for_those_alone_that_changed(small, tmp_path, visit):
    with serving([str(small.folder)], tmp_path / "cache") as address, EnhancedDatabaseConnection(small.url) as database:
        visitor = visit(address).open(f"/compare?runs={small.alive},{small.stalled}&m=val_loss").settle()
        asked = len(visitor.asked)
        step = database.summaries(small.alive)[0].last_step + 1
        database.save_metric(Metric(small.alive, "val_loss", 0.1234, step))
        visitor.tab.locator("tr", has_text="best val_loss").get_by_text("0.1234").wait_for()

        details = [url for url in visitor.asked[asked:] if f"/api/runs/{small.stalled}" in url]
        assert details == []


def test_a_list_that_was_scrolled_keeps_its_length_when_something_changes(tmp_path, visit):
    built = build_catalog(tmp_path / "runs", runs=12, checkpoints=600, points=6000)
    with serving([str(built.folder)], tmp_path / "cache") as address:
        visitor = visit(address).open("/checkpoints?sort=step").settle()
        tab = visitor.tab
        high = "document.querySelector('.main').scrollHeight"
        before = tab.evaluate(
            f"() => {{ const m = document.querySelector('.main'); m.scrollTop = {high}; return {high}; }}"
        )
        tab.wait_for_function(f"(old) => {high} > old", arg=before)
        grown, place = tab.evaluate(f"() => [{high}, document.querySelector('.main').scrollTop]")
        asked = len(visitor.asked)
        with EnhancedDatabaseConnection(built.url) as database:
            database.update_checkpoint(built.real_checkpoints[0], pinned=True)
        while not [url for url in visitor.asked[asked:] if "cursor=" in url]:
            tab.wait_for_timeout(50)
        visitor.settle()

        assert tab.evaluate(f"() => {high}") >= grown
        assert tab.evaluate("() => document.querySelector('.main').scrollTop") >= place


def test_a_diff_shows_new_nan_first_and_bars_by_what_is_finite(place, tmp_path, visit):
    folder, url = place
    with mc.ExperimentTracker("a", "b", database_url=url) as run, manager_of(run, folder) as manager:
        before = {"half": np.ones(8), "quarter": np.ones(8), "left_zero": np.zeros(8), "bad": np.ones(8)}
        after = {"half": np.full(8, 1.5), "quarter": np.full(8, 1.25), "left_zero": np.ones(8)}
        a = manager.save_checkpoint(before, step=1)
        b = manager.save_checkpoint({**after, "bad": np.full(8, np.nan)}, step=2)
    with serving([str(folder)], tmp_path / "cache") as address:
        for width in (360, 1280):
            visitor = visit(address, width=width).open(f"/diff?a={a}&b={b}").settle()
            visitor.tab.locator("ol.moved li").first.wait_for()
            rows = visitor.tab.locator("ol.moved li summary").all_inner_texts()
            bars = visitor.tab.locator("ol.moved [role=progressbar]")
            shares = [bar.get_attribute("aria-valuenow") for bar in bars.all()]
            visitor.shoot("diff-spoiled")
            visitor.flip_theme()
            visitor.shoot("diff-spoiled")

            assert [row.replace("\n", " ").split()[-2:] for row in rows[:2]] == [["8", "NaN/Inf"], ["from", "zero"]]
            assert shares == ["100", "100", "100", "50"]
            assert ".bad has 8 values that are not finite any more" in visitor.text(".answer")
            assert visitor.sideways() <= 0
            assert not [row for row in rows if "same" in row or "Infinity" in row]


def test_only_what_its_run_calls_exact_is_said_to_continue_bit_for_bit(small, tmp_path, visit):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parts = {"model": model, "optimizer": optimizer, "schedule": torch.optim.lr_scheduler.StepLR(optimizer, 2)}
    for _ in mc.Run(tmp_path / "loop", data=[1, 2, 3, 4], every=2, catalog=small.url, **parts):
        model(torch.ones(2)).sum().backward()
        optimizer.step()
        parts["schedule"].step()
    newest = mc.list_checkpoints(tmp_path / "loop")[0]
    with serving([str(small.folder)], tmp_path / "cache") as address:
        visitor = visit(address).open(f"/checkpoint/{newest.id}").settle()
        report = visitor.tab.locator(".panel", has_text="What a resume gets").locator(".sub").first
        assert report.inner_text() == "complete: continues bit for bit"
        visitor.shoot("checkpoint-exact")
        assert "ms" in visitor.text(".stat:has-text('Training stalled')")
        visitor.go(f"/checkpoint/{small.real_checkpoints[2]}").settle()

        assert "bit for bit" not in report.inner_text()


def test_the_save_timeline_knows_all_that_saves_record_and_nothing_else(place, tmp_path, visit):
    folder, url = place
    with mc.ExperimentTracker("a", "b", database_url=url) as run, manager_of(run, folder) as manager:
        manager.save_checkpoint({"w": np.zeros(1 << 16)}, step=1)
        manager.save_checkpoint({"w": np.zeros(1 << 16)}, step=2, blocking=False).result()
    with serving([str(folder)], tmp_path / "cache") as address:
        visitor = visit(address).open(f"/run/{run.experiment_id}/saves").settle()
        tab = visitor.tab
        kinds = (
            "(all) => [...new Set(all.flatMap((one) => [...one.classList].filter((word) => word.startsWith('k-'))))]"
        )
        legend = tab.locator(".keys .swatch").evaluate_all(kinds)
        drawn = tab.locator(".wf .lane i").evaluate_all(kinds)
        titles = tab.locator(".wf .lane i").evaluate_all("(all) => all.map((one) => one.title)")
        colours = tab.locator(".keys .swatch").evaluate_all(
            "(all) => all.map((i) => getComputedStyle(i).backgroundColor)"
        )
        visitor.shoot("saves-real")

        assert sorted(legend) == sorted(drawn)
        assert not [title for title in titles if "undefined" in title]
        assert len(set(colours)) == len(legend)
        assert "until its bytes are durable" in tab.locator(".stats").last.inner_text()


def test_a_save_that_nobody_timed_is_not_called_free(tmp_path, visit):
    mc.save(tmp_path / "runs/a", {"w": np.zeros(4)}, step=1)
    with serving([str(tmp_path / "runs")], tmp_path / "cache") as address:
        visitor = visit(address).open("/saves").settle()

        assert "No save was timed yet" in visitor.text(".answer")
        assert visitor.tab.get_by_text("No save was timed", exact=True).count() == 1


@pytest.mark.parametrize("count", [1, 3])
def test_the_trash_dialog_of_a_list_shows_the_command_that_does_the_same(small, tmp_path, visit, count):
    with serving([str(small.folder)], tmp_path / "cache") as address:
        visitor = visit(address).open(f"/run/{small.real}/checkpoints").settle()
        tab = visitor.tab
        for box in tab.locator("tr.r input[type=checkbox]").all()[:count]:
            box.check()
        tab.locator(".selbar").get_by_role("button", name="Trash").click()
        told = tab.locator("dialog[open] code").inner_text()
        visitor.shoot(f"trash-dialog-{count}")
        before = len(mc.list_checkpoints(small.root))
        done = CliRunner().invoke(app, shlex.split(told)[1:])

        tab.locator("dialog[open]").get_by_role("button", name="Cancel").click()
        tab.get_by_text(f"{4 - count} checkpoint").first.wait_for()  # the catalog was told, and so was the page

        assert told.startswith("mckpt rm ")
        assert done.exit_code == 0
        assert before - len(mc.list_checkpoints(small.root)) == count


@pytest.mark.parametrize("axis", ["time", "wall"])
def test_a_curve_over_time_grows_by_its_tail_alone(small, tmp_path, visit, axis):
    with serving([str(small.folder)], tmp_path / "cache") as address:
        visitor = visit(address).open(f"/run/{small.alive}?x={axis}").settle()
        shown = visitor.tab.locator(".legend tr", has_text="val_loss").locator("td.v")
        asked = len(visitor.asked)
        add_point(small, time.time() + 7200.0)  # its points reach into the next hour
        shown.get_by_text("0.1234").wait_for()

        series = [url for url in visitor.asked[asked:] if "/series" in url]
        assert series
        assert all("x=time" in url and "since=" in url for url in series)


def test_runs_without_branches_reads_or_usual_metrics_are_told_in_words_that_fit(place, tmp_path, visit):
    """As after a first evening: some runs that differ by much, one metric, nothing verified."""
    folder, url = place
    for n, loss in enumerate((1e-5, 3e25)):
        with mc.ExperimentTracker(f"lr {n}", database_url=url) as run, manager_of(run, folder) as manager:
            for step in range(4):
                run.log_metrics({"loss": loss}, step=step)
                manager.save_checkpoint({"w": np.ones(2)}, step=step, loss=loss)
    with EnhancedDatabaseConnection(url) as database:
        runs = ",".join(one.id for one in sorted(database.list_experiments().items, key=lambda one: one.name))
    with serving([str(folder)], tmp_path / "cache") as address:
        visitor = visit(address).open("/lineage").settle()
        assert visitor.text(".answer") == "None of the 2 runs shown started from a checkpoint of another."
        visitor.go("/integrity").settle()
        assert visitor.text(".answer").startswith("None of 8 checkpoints was read back yet")
        assert "No damage found" not in visitor.text(".main")
        visitor.go(f"/compare?runs={runs}").settle()
        visitor.tab.get_by_text("3.00e30\u00d7").first.wait_for()
        visitor.go("/storage").settle()
        visitor.tab.get_by_role("button", name="Goes 2").wait_for()  # the best by loss, which is what is measured
        assert "val_loss" not in visitor.text(".main")
        visitor.go("/runs").settle()
        cut = "(all) => all.filter((one) => one.parentElement.scrollWidth > one.parentElement.clientWidth).length"
        for width in (1280, 360):
            visitor.dress(width, "light")
            assert visitor.tab.locator("tr.r .badge").evaluate_all(cut) == 0, width


def test_a_run_has_no_points_only_where_it_logged_none(place, tmp_path, visit):
    """A loss that is NaN from the first step on was measured all the same."""
    _, url = place
    for name, losses in (("lost", [float("nan")] * 40), ("nearly", [float("inf")] * 39 + [0.5]), ("mute", [])):
        with mc.ExperimentTracker(name, database_url=url) as run:
            for step, loss in enumerate(losses):
                run.log_metrics({"loss": loss}, step=step)
    with serving([str(place[0])], tmp_path / "cache") as address:
        visitor = visit(address).open("/runs").settle()
        rows = visitor.tab.locator("tr.r").all_inner_texts()
        told = {name: next(row for row in rows if name in row) for name in ("lost", "nearly", "mute")}

    assert "\tnot finite\t" in told["lost"]
    assert "\tmostly not finite\t" in told["nearly"]
    assert "no points" in told["mute"]


@pytest.mark.parametrize(
    ("metrics", "note"),
    [({}, "none was saved with it"), ({"accuracy": 0.5}, None), ({"loss": 0.5}, "the best of the run")],
    ids=["none", "one that nobody ranks", "loss"],
)
def test_a_lone_checkpoint_is_told_as_one_and_not_called_worse_than_others(tmp_path, visit, metrics, note):
    mc.save(tmp_path / "runs/a", {"w": np.zeros(4)}, step=1, metrics=metrics)
    with serving([str(tmp_path / "runs")], tmp_path / "cache") as address:
        visitor = visit(address).open("/integrity").settle()
        assert visitor.text(".answer").startswith("The 1 checkpoint was not read back yet")
        visitor.go("/checkpoints").settle()
        assert "1 was not read back yet" in visitor.text(".answer")
        visitor.tab.locator("tr.r a.name").click()
        figures = visitor.tab.locator(".stat").first
        figures.get_by_text(next(iter(metrics), "Metric")).wait_for()
        assert figures.locator(".note").all_inner_texts() == ([] if note is None else [note])
        run = visitor.tab.locator(".answer a").get_attribute("href").rpartition("/")[2]
        visitor.go(f"/compare?runs={run}").settle()
        visitor.tab.locator("h1").get_by_text("Compare 1 run").wait_for()
        assert visitor.text(".answer").endswith(" with 0.5." if metrics else "It logged no metric.")


@pytest.mark.parametrize("first", [60, 10], ids=["counts on", "counts anew"])
def test_a_branch_lies_where_it_began_whether_it_counts_its_steps_on_or_anew(place, tmp_path, visit, first):
    folder, url = place
    model = {"w": np.zeros(2)}
    with mc.ExperimentTracker("parent", database_url=url) as run, manager_of(run, folder) as manager:
        for step in (40, 50, 60, 70):
            branch = manager.save_checkpoint(model, step=step)
            if step == 50:
                left = branch
    with mc.ExperimentTracker("child", database_url=url) as run, manager_of(run, folder) as manager:
        run.connection.add_edge(LineageEdge(parent=left, child=run.experiment_id, kind="resumed", step=50))
        for step in (first, first + 10):
            manager.save_checkpoint(model, step=step)
            run.log_metrics({"loss": 1.0}, step=step)
    with serving([str(folder)], tmp_path / "cache") as address:
        visitor = visit(address).open("/lineage").settle()
        place_of = "(label) => +document.querySelector(`svg a[aria-label^='${label},'] circle`).getAttribute('cx')"
        steps = {label: visitor.tab.evaluate(place_of, f"parent, step {label}") for label in (40, 50, 60, 70)}
        child = [visitor.tab.evaluate(place_of, f"child, step {step}") for step in (first, first + 10)]
        visitor.shoot(f"lineage-from-{first}")

    assert child == pytest.approx([steps[60], steps[70]])
    assert steps[60] - steps[50] == pytest.approx(steps[50] - steps[40])
