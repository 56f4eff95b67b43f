"""Grid monitoring: lines that survive a crash, times that are right, advice that helps."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_checkpoint.errors import ChunkMismatch
from model_checkpoint.hooks import ExperimentRecoveryHook, GridCoordinatorHook, GridProgressHook, HookInvalid
from model_checkpoint.hooks.builtin.grid.recovery_advice import advice_for
from model_checkpoint.hooks.builtin.json_lines import JsonLines, replace_json


def events(log):
    return [line["event"] for line in log]


# --- the log ---------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 60), st.lists(st.dictionaries(st.text(max_size=5), st.integers(), max_size=3), max_size=3))
def test_a_log_torn_anywhere_keeps_all_whole_records_and_takes_new_ones(tmp_path_factory, cut, more):
    log = JsonLines(tmp_path_factory.mktemp("log") / "log.jsonl")
    for number in range(3):
        log.append({"number": number})
    text = log.path.read_bytes()
    log.path.write_bytes(text[: len(text) - cut] if cut < len(text) else b"")
    kept = list(log)

    for record in more:
        log.append(record)

    assert kept == [{"number": number} for number in range(len(kept))]
    assert list(log) in (kept + more, [*kept, {"number": len(kept)}, *more])  # the cut may have taken the newline alone


@pytest.mark.slow
def test_many_processes_append_to_one_log_and_no_line_is_lost(tmp_path):
    script = """
import sys
from model_checkpoint.hooks.builtin.json_lines import JsonLines
log = JsonLines(sys.argv[1])
for number in range(50):
    log.append({"who": sys.argv[2], "number": number, "text": "x" * 500})
"""
    path = tmp_path / "log.jsonl"
    running = [subprocess.Popen([sys.executable, "-c", script, path, str(who)]) for who in range(4)]

    assert [process.wait(120) for process in running] == [0] * 4
    lines = [(line["who"], line["number"]) for line in JsonLines(path)]
    assert sorted(lines) == sorted((str(who), number) for who in range(4) for number in range(50))


def test_a_log_is_read_on_from_where_one_was(tmp_path):
    log = JsonLines(tmp_path / "log.jsonl")
    log.append({"n": 1})
    first, offset = log.since(0)
    log.append({"n": 2})
    with open(log.path, "ab") as file:
        file.write(b'{"n": 3')

    second, offset = log.since(offset)
    assert (first, second) == ([{"n": 1}], [{"n": 2}])
    assert log.since(offset) == ([], offset)


def test_a_summary_is_replaced_whole_or_stays(tmp_path):
    path = tmp_path / "summary.json"
    replace_json(path, {"n": 1})

    with pytest.raises(ValueError, match="not JSON compliant"):
        replace_json(path, {"n": float("nan")})

    assert json.loads(path.read_text()) == {"n": 1}
    assert os.listdir(tmp_path) == ["summary.json"]


# --- progress --------------------------------------------------------------------------------------------------------


def test_a_line_comes_every_hundred_steps_with_best_loss_and_time_left(tmp_path):
    progress = GridProgressHook(tmp_path / "p.jsonl", total_steps=400)

    for step in range(1, 301):
        progress.step(step, loss=abs(step - 150) / 100, lr=0.1)

    lines = list(progress.log)
    assert [(line["step"], line["best_loss"]) for line in lines] == [(100, 0.5), (200, 0.0), (300, 0.0)]
    assert lines[-1]["metrics"] == {"lr": 0.1}
    assert lines[-1]["seconds_left"] == pytest.approx(progress.seconds_left(), abs=1e-3)
    assert lines[-1]["estimated_completion"] >= lines[-1]["at"]


def test_the_time_left_follows_the_pace(tmp_path):
    progress = GridProgressHook(tmp_path / "p.jsonl", total_steps=1000)
    progress._marks.extend([(10.0, 100), (20.0, 200)])

    assert progress.seconds_left() == pytest.approx(80.0)


def test_steps_that_jump_over_a_hundred_are_written(tmp_path):
    progress = GridProgressHook(tmp_path / "p.jsonl")

    for step in (70, 140, 210):
        progress.step(step)

    assert [line["step"] for line in progress.log] == [140, 210]


def test_checkpoints_best_models_and_errors_are_lines(tmp_path, manager):
    progress = GridProgressHook(tmp_path / "p.jsonl", heartbeat_interval=None)
    manager.register_hook(progress)

    manager.fire_hook("after_checkpoint_save", checkpoint_id="c-1", experiment_id="e-1", step=5, loss=0.5)
    manager.fire_hook("on_best_model_update", checkpoint_id="c-1", experiment_id="e-1")
    manager.fire_hook("on_error", experiment_id="e-1", error=OSError("disk"))
    progress.finish()

    assert events(progress.log) == ["start", "checkpoint", "best", "error", "end"]
    lines = list(progress.log)
    assert (lines[1]["checkpoint_id"], lines[1]["step"], lines[1]["checkpoints_saved"]) == ("c-1", 5, 1)
    assert (lines[3]["error"], lines[4]["status"], lines[4]["experiment_id"]) == ("OSError: disk", "completed", "e-1")
    assert manager.dead_letters() == ()


def test_a_run_that_hangs_still_has_a_heartbeat_and_a_closed_one_has_none(tmp_path, manager):
    progress = GridProgressHook(tmp_path / "p.jsonl", heartbeat_interval=0.01)
    manager.register_hook(progress)

    while events(progress.log).count("heartbeat") < 2:
        pass
    beats = [line for line in progress.log if line["event"] == "heartbeat"]
    assert beats[1]["seconds_since_step"] > beats[0]["seconds_since_step"] >= 0

    hearts = [thread for thread in threading.enumerate() if thread.name == "mckpt-heartbeat"]
    manager.close()
    for heart in hearts:
        heart.join(60)
        assert not heart.is_alive()


def test_training_goes_on_when_the_log_cannot_be_written(tmp_path, caplog, manager):
    (tmp_path / "file").write_text("in the way")
    progress = GridProgressHook(tmp_path / "file" / "p.jsonl", log_interval=1)

    for step in range(1, 4):
        progress.step(step)
    manager.register_hook(progress)
    result = manager.fire_hook("after_checkpoint_save")

    assert progress.lines_lost == 4
    assert caplog.text.count("a line of progress was lost") == 1
    assert (bool(result), len(result.errors)) == (True, 1)


@pytest.mark.parametrize("options", [{"log_interval": 0}, {"heartbeat_interval": 0}])
def test_intervals_are_above_zero(tmp_path, options):
    with pytest.raises(HookInvalid, match="interval is"):
        GridProgressHook(tmp_path / "p.jsonl", **options)


# --- recovery --------------------------------------------------------------------------------------------------------


def test_a_run_that_is_killed_leaves_what_to_resume_from(tmp_path):
    script = """
import os, signal, sys
from model_checkpoint.hooks import ExperimentRecoveryHook, HookManager
manager = HookManager()
manager.register_hook(ExperimentRecoveryHook(sys.argv[1]))
for step in (100, 200):
    manager.fire_hook("after_checkpoint_save", checkpoint_id=f"c-{step}", experiment_id="e-1", step=step)
os.kill(os.getpid(), signal.SIGKILL)
"""
    path = tmp_path / "r.jsonl"
    assert subprocess.run([sys.executable, "-c", script, path], check=False).returncode == -signal.SIGKILL

    record = ExperimentRecoveryHook(path).recovery("e-1")
    assert (record.last_checkpoint["checkpoint_id"], record.failure) == ("c-200", None)
    assert record.advice[0] == "Resume from checkpoint c-200 at step 200."
    assert "killed process" in record.advice[1]


def test_a_failure_is_recorded_with_advice_and_the_checkpoint_before_it(tmp_path, manager):
    recovery = ExperimentRecoveryHook(tmp_path / "r.jsonl")
    manager.register_hook(recovery)
    manager.fire_hook("after_checkpoint_save", checkpoint_id="a-1", experiment_id="a", step=1)
    manager.fire_hook("after_checkpoint_save", checkpoint_id="b-1", experiment_id="b", step=7)
    manager.fire_hook("on_error", experiment_id="a", error=MemoryError("CUDA out of memory"))

    record = recovery.recovery("a")
    assert record.failure == "MemoryError: CUDA out of memory"
    assert record.advice[0] == "Resume from checkpoint a-1 at step 1."
    assert "smaller batch" in record.advice[1]
    assert manager.dead_letters() == ()


def test_the_experiment_that_wrote_last_is_meant_when_none_is_named(tmp_path, manager):
    recovery = ExperimentRecoveryHook(tmp_path / "r.jsonl")
    manager.register_hook(recovery)
    for name in "ab":
        manager.fire_hook("after_checkpoint_save", checkpoint_id=f"{name}-1", experiment_id=name, step=1)
    manager.fire_hook("after_checkpoint_load", checkpoint_id="a-1", experiment_id="a")

    assert recovery.recovery().experiment_id == "a"
    assert recovery.recovery().last_checkpoint["checkpoint_id"] == "a-1"


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (MemoryError(), "Memory ran out"),
        (RuntimeError("CUDA out of memory. Tried to allocate"), "Memory ran out"),
        (OSError(errno.ENOSPC, "No space left on device"), "The disk is full"),
        (ChunkMismatch("chunk 3 differs"), "damaged"),
        (FloatingPointError("overflow"), "Numbers left their range"),
        (TimeoutError(), "took too long"),
        (ConnectionResetError(), "could not be reached"),
    ],
)
def test_advice_fits_the_error(error, word):
    advice = advice_for(error, {"checkpoint_id": "c", "step": 1})

    assert advice[0] == "Resume from checkpoint c at step 1."
    assert [word in sentence for sentence in advice[1:]] == [True]


# --- the grid --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_experiments_of_many_processes_add_up_and_one_that_was_killed_has_vanished(tmp_path):
    script = """
import os, signal, sys
from model_checkpoint.hooks import GridCoordinatorHook, HookManager
grid = GridCoordinatorHook(sys.argv[1], total_experiments=6)
manager = HookManager()
manager.register_hook(grid)
who = int(sys.argv[2])
with grid.experiment(f"e-{who}", config={"lr": who}):
    for step in range(3):
        manager.fire_hook("after_checkpoint_save", experiment_id=f"e-{who}", step=step, loss=1 / (step + 1))
    if who == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if who == 1:
        raise MemoryError("no room")
"""
    path = tmp_path / "summary.json"
    running = [
        subprocess.Popen([sys.executable, "-c", script, path, str(who)], stderr=subprocess.DEVNULL) for who in range(4)
    ]
    assert [process.wait(120) for process in running] == [-signal.SIGKILL, 1, 0, 0]

    summary = GridCoordinatorHook(path, total_experiments=6).summary()
    counts = {key: value for key, value in summary.items() if key.endswith("_experiments")}
    assert counts == {
        "total_experiments": 6,
        "running_experiments": 0,
        "completed_experiments": 2,
        "failed_experiments": 1,
        "vanished_experiments": 1,
    }
    assert summary["progress"] == 0.5
    assert [summary["experiments"][f"e-{who}"]["checkpoints"] for who in range(4)] == [3] * 4
    assert summary["experiments"]["e-1"]["last_error"] == "MemoryError: no room"
    assert json.loads(path.read_text())["completed_experiments"] == 2


def test_the_size_of_a_grid_is_read_from_its_file(tmp_path):
    config = tmp_path / "grid.json"
    config.write_text(json.dumps({"parameters": {"lr": [0.1, 0.2, 0.3], "depth": [1, 2]}}))

    grid = GridCoordinatorHook(tmp_path / "s.json", grid_config_file=config)

    assert grid.summary()["total_experiments"] == 6


def test_an_experiment_that_is_begun_again_runs_again(tmp_path):
    grid = GridCoordinatorHook(tmp_path / "s.json")
    grid.start("a")
    grid.finish("a", error="preempted")
    grid.start("a")

    assert grid.summary()["running_experiments"] == 1


def test_the_time_left_of_a_grid_follows_from_what_is_done(tmp_path):
    grid = GridCoordinatorHook(tmp_path / "s.json", total_experiments=3)
    with grid.experiment("a"):
        pass

    summary = grid.summary()
    one = summary["experiments"]["a"]
    assert summary["seconds_left"] == pytest.approx(2 * (one["ended_at"] - one["started_at"]))
