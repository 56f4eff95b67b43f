"""What people do on the pages, each in a real browser against a real server."""

import dataclasses
import time

import numpy as np
import pytest
from tests.web.conftest import add_point, serving

import model_checkpoint as mc
from model_checkpoint.database import EnhancedDatabaseConnection, Experiment, LineageEdge, Metric

pytestmark = pytest.mark.slow


def test_a_point_is_on_the_page_soon_after_it_is_written_and_only_the_tail_is_fetched(
    small, tmp_path, visit, tell_figure
):
    with serving([str(small.folder)], tmp_path / "cache") as address:
        visitor = visit(address).open(f"/run/{small.alive}").settle()
        shown = visitor.tab.locator(".legend tr", has_text="val_loss").locator("td.v")
        asked = len(visitor.asked)
        add_point(small)
        written = time.perf_counter()
        shown.get_by_text("0.1234").wait_for()
        tell_figure("live on a small catalog", time.perf_counter() - written)

        series = [url for url in visitor.asked[asked:] if "/series" in url]
        assert shown.inner_text() == "0.1234"
        assert series
        assert all("since=" in url for url in series)


def test_without_the_token_the_page_asks_for_it_and_then_keeps_it_out_of_the_address(served, visit):
    visitor = visit(served, token=None)
    visitor.expected = ("401",)
    visitor.open("/storage")
    visitor.tab.get_by_text("This server wants its token").wait_for()
    visitor.shoot("gate")
    visitor.tab.get_by_label("Token or address").fill(f"{served}/#token=t")
    visitor.tab.get_by_role("button", name="Open").click()
    visitor.settle()

    assert visitor.text("h1") == "Storage"
    assert "token" not in visitor.tab.url
    assert not any("token=" in url for url in visitor.asked)


def test_a_plain_root_is_shown_without_buttons_that_could_not_work_and_the_page_says_why(tmp_path, visit):
    for step in (1, 2):
        mc.save(tmp_path / "runs/a", {"model": {"w": [1.0, 2.0]}}, step=step, metrics={"loss": 1.0 / step})
    with serving([str(tmp_path / "runs")], tmp_path / "cache") as address:
        visitor = visit(address).open("/storage").settle()

        assert "plain roots" in visitor.text(".note-bar")
        assert visitor.tab.get_by_role("button", name="Move").count() == 0
        assert "read only" in visitor.text(".rail footer")
        visitor.go("/checkpoints").settle()
        visitor.tab.locator("tr.r a.name").first.click()
        visitor.tab.get_by_text("What a resume gets").wait_for()
        for verb in ("Pin", "Verify", "More"):
            assert visitor.tab.get_by_role("button", name=verb, exact=True).count() == 0


def test_a_prune_is_previewed_told_as_a_command_done_and_undone(tmp_path, visit):
    folder = tmp_path / "runs"
    folder.mkdir()
    with (
        mc.ExperimentTracker("a", "b", database_url=f"sqlite:///{folder}/experiments.db") as run,
        mc.EnhancedCheckpointManager(run, folder / "root", max_checkpoints=None) as manager,
    ):
        for step in range(1, 6):
            manager.save_checkpoint({"w": np.full(64, step, np.float32)}, step=step, loss=1.0 / step)

    def steps():
        return sorted(info.step for info in mc.list_checkpoints(folder / "root"))

    with serving([str(folder)], tmp_path / "cache") as address:
        visitor = visit(address).open("/storage?last=2&best=0").settle()
        tab = visitor.tab
        tab.get_by_role("button", name="Move 3 to trash").click()
        dialog = tab.locator("dialog[open]")
        assert "mckpt rm" in dialog.inner_text()
        assert dialog.locator("code").inner_text().count("root@") == 3
        visitor.shoot("prune-dialog")
        assert steps() == [1, 2, 3, 4, 5]  # nothing yet
        dialog.get_by_role("button", name="Move to trash").click()
        tab.get_by_text("3 checkpoints moved to trash").wait_for()
        assert steps() == [4, 5]
        tab.get_by_role("button", name="Trash 3").click()
        tab.get_by_text("step 1").wait_for()
        visitor.shoot("trash")
        tab.get_by_role("button", name="Undo").click()
        tab.get_by_text("3 checkpoints restored").wait_for()
        assert steps() == [1, 2, 3, 4, 5]


def throw_away(tab, root):
    """Move the checkpoint of the page to the trash; how many there were before."""
    before = len(mc.list_checkpoints(root))
    tab.get_by_role("button", name="More").click()
    tab.get_by_role("button", name="Move to trash").click()
    tab.locator("dialog[open]").get_by_role("button", name="Move to trash").click()
    tab.get_by_text("1 checkpoint moved to trash").wait_for()
    assert len(mc.list_checkpoints(root)) == before - 1
    return before


def test_a_checkpoint_goes_to_the_trash_and_comes_back_by_undo(small, tmp_path, visit):
    last = small.real_checkpoints[0]
    with serving([str(small.folder)], tmp_path / "cache") as address:
        visitor = visit(address).open(f"/checkpoint/{last}").settle()
        tab = visitor.tab
        assert "every 10 steps" in tab.locator("ul.reasons").inner_text()  # the policy of its run
        before = throw_away(tab, small.root)
        tab.get_by_role("button", name="Undo").click()
        tab.get_by_text("1 checkpoint restored").wait_for()
        assert len(mc.list_checkpoints(small.root)) == before


def test_a_pin_stays_and_a_damaged_one_is_repaired_from_its_parity(small, tmp_path, visit):
    damaged = small.real_checkpoints[1]
    with serving([str(small.folder)], tmp_path / "cache") as address:
        visitor = visit(address).open(f"/checkpoint/{damaged}").settle()
        tab = visitor.tab
        tab.keyboard.press("p")
        tab.locator("h1").get_by_text("pinned").wait_for()
        tab.get_by_role("button", name="Verify").click()
        tab.locator("h1").get_by_text("damaged").wait_for()
        assert "A resume passes it over" in visitor.text(".answer")
        visitor.go("/integrity")
        repair = tab.get_by_role("button", name="Repair from")
        repair.wait_for()
        visitor.shoot("integrity-damage")
        repair.click()
        tab.get_by_text("every byte matches its digest again").wait_for()
    assert all(health.ok for health in mc.verify(small.root))


def test_names_from_users_are_text(small, tmp_path, visit):
    nasty = '<img src="http://elsewhere.example/x" onerror="document.title=1">'
    with EnhancedDatabaseConnection(small.url) as connection:
        connection.save_experiment(
            Experiment(id="nasty", name=nasty, status="running", tags=[nasty], config={nasty: nasty})
        )
    with serving([str(small.folder)], tmp_path / "cache") as address:
        visitor = visit(address).open("/runs").settle()
        assert visitor.tab.get_by_text(nasty).count() >= 1
        visitor.go("/run/nasty/config").settle()
        assert nasty in visitor.text(".kv")
        assert visitor.tab.locator("img").count() == 0


def test_a_search_that_cannot_be_read_says_where_and_what_was_meant(served, visit):
    visitor = visit(served)
    visitor.expected = ("400",)
    visitor.open("/runs?q=vall_loss%20%3C%202.3").settle()
    tab = visitor.tab
    assert tab.locator(".query mark").inner_text() == "vall_loss"
    tab.locator(".query .hint button").click()
    tab.wait_for_function("() => !document.querySelector('.query .hint') && document.querySelector('tr.r')")

    assert tab.get_by_label("Filter runs").input_value() == "val_loss < 2.3"
    assert "val_loss" in tab.url


def test_the_keyboard_is_enough(served, big, visit):
    visitor = visit(served).open("/runs").settle()
    tab = visitor.tab
    for key in ("j", "x", "j", "x", "c"):
        tab.keyboard.press(key)
    tab.wait_for_url(lambda url: "#/compare?runs=" in url)
    tab.keyboard.press("g")
    tab.keyboard.press("s")
    tab.wait_for_url(lambda url: "#/storage" in url)
    tab.keyboard.press("Control+k")
    tab.locator("dialog.palette[open] input:focus").wait_for()
    tab.keyboard.type("real")
    tab.get_by_role("option", name="digits/real").wait_for()
    visitor.shoot("palette")
    tab.keyboard.press("Enter")
    tab.wait_for_url(lambda url: url.endswith(f"#/run/{big.real}"))
    tab.keyboard.press("?")
    assert "select the row" in tab.locator("dialog[open]").inner_text()


def test_charts_are_zoomed_and_plans_are_looked_at_by_keys_alone(served, big, visit, axe):
    visitor = visit(served).open(f"/run/{big.alive}").settle()
    tab = visitor.tab
    tab.get_by_role("application").first.focus()
    tab.keyboard.press("+")
    tab.get_by_role("button", name="Reset zoom").wait_for()
    first = tab.url.partition("zoom=")[2]
    tab.get_by_role("application").first.focus()
    tab.keyboard.press("ArrowRight")
    tab.wait_for_function("(old) => !location.hash.endsWith(old)", arg=first)
    violations = visitor.violations(axe)
    tab.keyboard.press("0")
    tab.get_by_role("button", name="Reset zoom").wait_for(state="detached")
    visitor.go(f"/run/{big.real}/memory").settle()
    tab.get_by_role("application").focus()
    tab.keyboard.press("Home")
    tab.get_by_text("This plan:").wait_for()
    least = tab.get_by_text("This plan:").inner_text()
    tab.keyboard.press("End")
    tab.wait_for_function("(old) => !document.body.innerText.includes(old)", arg=least)

    assert violations == []
    assert visitor.violations(axe) == []


def test_a_zoom_asks_again_and_stays_in_the_address(served, big, visit):
    visitor = visit(served).open(f"/run/{big.alive}").settle()
    tab = visitor.tab
    box = tab.locator(".u-over").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    tab.mouse.move(box["x"] + box["width"] * 0.3, middle)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] * 0.5, middle, steps=4)
    asked = len(visitor.asked)
    tab.mouse.up()
    tab.get_by_role("button", name="Reset zoom").wait_for()
    tab.get_by_role("button", name="Log").click()
    tab.reload()
    visitor.settle()

    assert any("/series" in url and "from=" in url and "to=" in url for url in visitor.asked[asked:])
    assert "zoom=" in tab.url
    assert "log=1" in tab.url
    assert tab.get_by_role("button", name="Reset zoom").count() == 1


def test_the_columns_one_chose_stay_and_marks_under_a_curve_lead_to_their_checkpoints(served, big, visit):
    visitor = visit(served).open("/runs").settle()
    tab = visitor.tab
    titles = tab.locator("thead th")
    tab.get_by_role("button", name="Columns").click()
    tab.locator(".menu label", has_text="Progress").locator("input").uncheck()
    tab.reload()
    visitor.settle()
    assert titles.filter(has_text="State").count() == 1
    assert titles.filter(has_text="Progress").count() == 0

    visitor.go(f"/run/{big.alive}").settle()
    mark = tab.locator(".marks a").first
    assert "step" in mark.get_attribute("aria-label")
    mark.click()
    tab.get_by_text("What a resume gets").wait_for()
    assert f"#/checkpoint/ckpt-{big.alive[3:]}-" in tab.url


def test_a_comparison_shows_the_settings_that_differ_and_the_others_when_asked(served, visit):
    visitor = visit(served).open("/compare?runs=run0000,run0025").settle()
    settings = visitor.tab.locator(".panel", has_text="only what differs")
    assert "seed" in settings.inner_text()
    assert "total_steps" not in settings.inner_text()

    visitor.tab.get_by_role("button", name="Differences only").click()
    visitor.tab.get_by_text("total_steps").wait_for()
    assert "all=1" in visitor.tab.url


def test_a_memory_plan_is_drawn_and_a_point_of_its_curve_tells_how_to_have_it(served, big, visit):
    visitor = visit(served).open(f"/run/{big.real}").settle()
    tab = visitor.tab
    tab.get_by_role("link", name="Memory plan").click()
    tab.get_by_text("What happens to each stage").wait_for()
    assert "Chosen plan" in visitor.text(".chart + p")
    assert tab.locator(".stages li").count() >= 10
    assert tab.locator(".stages li.recompute, .stages li.drop").count() > 0

    box = tab.locator(".u-over").bounding_box()
    tab.mouse.click(box["x"] + 2, box["y"] + box["height"] / 2)  # the least memory there is a plan for

    tab.get_by_text("This plan").wait_for()
    assert "auto_checkpoint(model, " in visitor.text(".chart + p")


def test_a_server_that_ended_is_told_and_the_figures_stay(small, tmp_path, visit):
    with serving([str(small.folder)], tmp_path / "cache") as address:
        visitor = visit(address).open("/storage").settle().go("/runs").settle()
    rows = visitor.tab.locator("tr.r").count()
    visitor.tab.get_by_text("Not live").wait_for()
    visitor.go("/storage")
    visitor.tab.get_by_text("The server does not answer").first.wait_for()

    assert rows == 13
    assert visitor.tab.get_by_role("button", name="Try again").count() == 1


def test_tags_and_a_note_are_put_on_taken_back_and_stand_in_the_root(small, tmp_path, visit):
    id = small.real_checkpoints[0]

    def marks():
        (info,) = [one for one in mc.list_checkpoints(small.root) if one.id == id]
        return info.tags, info.note

    with serving([str(small.folder)], tmp_path / "cache") as address:
        tab = visit(address).open(f"/checkpoint/{id}").settle().tab
        for verb, label, words in (("Tags", "Tags", "paper table-3"), ("Note", "Note", "numbers of table 3")):
            tab.get_by_role("button", name="More").click()
            tab.get_by_role("button", name=verb, exact=True).click()
            tab.locator("dialog[open]").get_by_label(label).fill(words)
            tab.locator("dialog[open]").get_by_role("button", name="Save").click()
            tab.get_by_text(f"{verb} saved.").wait_for()
        tab.locator(".answer", has_text="numbers of table 3").wait_for()
        assert (sorted(marks()[0]), marks()[1]) == (["paper", "table-3"], "numbers of table 3")

        tab.locator(".toast", has_text="Note saved.").get_by_role("button", name="Undo").click()
        tab.locator(".answer:not(:has-text('table 3'))").wait_for()
        assert marks()[1] == ""


def test_buttons_come_with_the_word_that_they_may_be_used_however_late_that_is(small, tmp_path, visit):
    with serving([str(small.folder)], tmp_path / "cache") as address:
        visitor, held = visit(address), []
        visitor.tab.route("**/api/meta", lambda route: held.append(route))
        visitor.open(f"/checkpoint/{small.real_checkpoints[0]}")
        visitor.tab.locator(".answer").wait_for()
        assert visitor.tab.get_by_role("button", name="More").count() == 0

        for one in held:
            one.continue_()
        visitor.tab.get_by_role("button", name="More").wait_for()


def test_one_of_the_trash_is_restored_by_its_button(small, tmp_path, visit):
    with serving([str(small.folder)], tmp_path / "cache") as address:
        visitor = visit(address).open(f"/checkpoint/{small.real_checkpoints[2]}").settle()
        tab = visitor.tab
        before = throw_away(tab, small.root)
        visitor.go("/storage").settle()
        tab.get_by_role("button", name="Trash 1").click()
        tab.get_by_role("button", name="Restore", exact=True).click()
        tab.get_by_text("1 checkpoint restored").wait_for()

        assert len(mc.list_checkpoints(small.root)) == before


def test_lineage_says_what_each_child_changed(served, visit):
    visitor = visit(served).open("/lineage?exp=gpt2-124m").settle()
    row = visitor.tab.locator("tr.r", has_text="swiglu-4")

    assert "seed 0 \u2192 4" in row.inner_text()
    assert "step" in row.inner_text()


def test_of_the_list_of_runs_only_rows_that_changed_are_asked_for_again(small, tmp_path, visit):
    with serving([str(small.folder)], tmp_path / "cache") as address:
        visitor = visit(address).open("/runs").settle()
        shown = visitor.tab.locator("tr.r", has_text="baseline-0")
        asked = len(visitor.asked)
        with EnhancedDatabaseConnection(small.url) as connection:
            step = connection.get_experiment(small.alive).step + 1
            connection.save_metric(Metric(small.alive, "val_loss", 0.1234, step=step))
        shown.get_by_text("0.1234").wait_for()

        runs = [url for url in visitor.asked[asked:] if "/api/runs" in url]
        assert runs
        assert all(f"ids={small.alive}&" in url for url in runs)


def test_lineage_grows_by_the_run_that_changed_and_is_not_fetched_anew(small, tmp_path, visit):
    with serving([str(small.folder)], tmp_path / "cache") as address, EnhancedDatabaseConnection(small.url) as database:
        run, answers = database.get_experiment(small.alive), []
        visitor = visit(address)
        tab = visitor.tab
        tab.on("response", lambda one: answers.append(one) if "/api/lineage" in one.url else None)
        visitor.open(f"/lineage?all=1&exp={run.project_name}").settle()
        new = dataclasses.replace(run, id="new-run", name="brand-new", start_time=run.start_time + 1)
        database.save_experiment(new)
        database.add_edge(LineageEdge(parent=database.latest(run.id).id, child=new.id, kind="resumed", step=7))
        tab.locator("svg").get_by_text("brand-new").wait_for()
        database.update_experiment(new.id, status="failed")
        tab.locator("svg a[aria-label^='brand-new, failed']").wait_for()

        first, *later = [(one.url, len(one.body())) for one in answers]
        assert first[0].endswith("/api/lineage")
        assert len(later) >= 2
        assert all("ids=new-run" in url for url, _ in later), later
        assert all(size < first[1] for _, size in later), (first, later)


def test_a_window_that_becomes_narrow_keeps_the_cells_of_a_row_in_their_order(small, tmp_path, visit):
    with serving([str(small.folder)], tmp_path / "cache") as address:
        visitor = visit(address).open("/runs").settle()
        ends = visitor.tab.locator("tr.r td:last-child .menu-host")
        rows = visitor.tab.locator("tr.r").count()
        for width in (360, 1280, 360):
            visitor.dress(width, "light")
            visitor.tab.wait_for_timeout(100)
            assert ends.count() == rows > 0, width
            assert visitor.tab.locator("thead th:last-child").inner_text().strip().lower() == "actions", width
        visitor.go("/checkpoints").settle()
        for place in ("main.scrollHeight", "0"):
            visitor.tab.locator(".main").evaluate(f"(main) => {{ main.scrollTop = {place}; }}")
            visitor.tab.wait_for_timeout(200)
        order = visitor.tab.locator("tbody > tr").evaluate_all("(all) => all.map((one) => one.className.split(' ')[0])")
        assert order == ["r"] * (len(order) - 1) + ["pad"]  # the room for those that are not drawn is behind
