"""What is remembered: dead letters that can be made good, a timeline of costs, statistics; and a pool that died."""

import subprocess
import sys

import pytest

from model_checkpoint.hooks import FailureKind, HookEvent, HookManager, HookOutcome, HookPriority

SAVE, SAVED = HookEvent.BEFORE_CHECKPOINT_SAVE, HookEvent.AFTER_CHECKPOINT_SAVE


class Receiver:
    """A hook that fails until its server is back."""

    def __init__(self):
        self.up, self.got = False, []

    def on_after_checkpoint_save(self, context):
        if not self.up:
            raise ConnectionError("nobody there")
        self.got.append((context.checkpoint_id, context.get("step"), context.metadata.get("replay_of")))


def test_one_hook_that_fails_harms_neither_the_others_nor_the_event(manager):
    heard = []
    for name in "abc":
        manager.register_hook(f"fails {name}", lambda context: 1 / 0, [SAVED])
        manager.register_hook(name, lambda context, name=name: heard.append(name), [SAVED])

    result = manager.fire_hook(SAVED)

    assert (bool(result), heard, len(result.errors)) == (True, ["a", "b", "c"], 3)


def test_a_failure_is_a_letter_that_says_all(manager, caplog):
    manager.register_hook("tell", lambda context: 1 / 0, [SAVED])

    manager.fire_hook(SAVED, checkpoint_id="c-1", experiment_id="e-1", step=3)

    (letter,) = manager.dead_letters()
    assert (letter.hook, letter.event, letter.kind) == ("tell", SAVED, FailureKind.ERROR)
    assert (letter.checkpoint_id, letter.experiment_id, letter.data) == ("c-1", "e-1", {"step": 3})
    assert letter.error == "ZeroDivisionError: division by zero"
    assert "lambda context: 1 / 0" in letter.details
    assert "tell on AFTER_CHECKPOINT_SAVE: ZeroDivisionError" in caplog.text


class Speechless(Exception):
    """An error that fails even at being told."""

    def __str__(self):
        raise RuntimeError("no words")


class Touchy:
    """A value that raises when it is looked at."""

    @property
    def shape(self):
        raise RuntimeError("do not look")


def test_an_error_and_a_value_that_cannot_even_be_told_harm_nobody(manager):
    def fail(context):
        raise Speechless

    manager.register_hook("fails", fail, [SAVE], HookPriority.CRITICAL)

    result = manager.fire_hook(SAVE, step=1, odd=Touchy())

    (letter,) = manager.dead_letters()
    assert (letter.error, letter.data, letter.left_out) == (
        "Speechless: (it cannot be put into words)",
        {"step": 1},
        ("odd",),
    )
    with pytest.raises(RuntimeError, match="it cannot be put into words"):
        result.raise_if_vetoed()


def test_letters_are_made_good_when_the_cause_is_gone(manager):
    receiver = Receiver()
    manager.register_hook(receiver)
    for step in (1, 2):
        manager.fire_hook(SAVED, checkpoint_id=f"c-{step}", step=step)

    first = manager.replay_dead_letters()
    receiver.up = True
    second = manager.replay_dead_letters(ids=[2])
    third = manager.replay_dead_letters()

    assert (first.failed, second.done, third.done) == ((1, 2), (2,), (1,))
    assert receiver.got == [("c-2", 2, 2), ("c-1", 1, 1)]
    assert manager.dead_letters() == ()


def test_another_attempt_is_counted(manager):
    manager.register_hook(Receiver())
    manager.fire_hook(SAVED)

    manager.replay_dead_letters()

    assert [letter.attempts for letter in manager.dead_letters()] == [2]


def test_a_letter_whose_hook_is_gone_waits(manager):
    manager.register_hook("tell", lambda context: 1 / 0, [SAVED])
    manager.fire_hook(SAVED)
    manager.unregister_hook("tell")

    assert manager.replay_dead_letters().unclaimed == (1,)
    manager.register_hook("tell", lambda context: None, [SAVED])
    assert manager.replay_dead_letters().done == (1,)


def test_a_replay_goes_to_its_own_hook_alone(manager):
    heard = []
    receiver = Receiver()
    manager.register_hook(receiver)
    manager.register_hook("other", lambda context: heard.append(1), [SAVED])
    manager.fire_hook(SAVED)

    receiver.up = True
    manager.replay_dead_letters()

    assert heard == [1]


def test_letters_are_bounded_and_those_that_made_room_are_counted(manager):
    manager.register_hook("tell", lambda context: 1 / 0, [SAVED])

    for step in range(1005):
        manager.fire_hook(SAVED, step=step)

    letters = manager.dead_letters()
    assert (len(letters), letters[0].data, letters[-1].data) == (1000, {"step": 5}, {"step": 1004})
    assert manager.get_pool_stats()["dead_letters_dropped"] == 5


def test_a_letter_keeps_text_and_numbers_and_names_the_rest(manager):
    import numpy as np

    manager.register_hook("tell", lambda context: 1 / 0, [SAVED])
    state = {"weights": np.zeros(10)}

    manager.fire_hook(
        SAVED, loss=np.float32(0.5), metrics={"f1": 0.9, "bad": float("inf")}, state=state, big="x" * 10**6
    )

    (letter,) = manager.dead_letters()
    assert letter.data == {"loss": 0.5, "metrics": {"f1": 0.9, "bad": "Infinity"}}
    assert letter.left_out == ("state", "big")


# --- what it cost ----------------------------------------------------------------------------------------------------


def test_the_timeline_tells_what_each_hook_cost_on_each_event_of_a_save(manager):
    manager.register_hook("guard", lambda context: sum(range(200_000)), [SAVE], HookPriority.CRITICAL)
    manager.register_hook("tell", lambda context: None, [SAVE, SAVED])

    for name in ("c-1", "c-2"):
        manager.fire_hook(SAVE, checkpoint_id=name)
        manager.fire_hook(SAVED, checkpoint_id=name)

    runs = manager.timeline("c-2")
    assert [(run.hook, run.event) for run in runs] == [("guard", SAVE), ("tell", SAVE), ("tell", SAVED)]
    assert runs[0].seconds > runs[1].seconds > 0
    assert runs[0].held == runs[0].seconds
    assert [run.began_at for run in runs] == sorted(run.began_at for run in runs)
    assert len(manager.timeline()) == 6


def test_the_timeline_is_bounded(manager):
    manager.register_hook("tell", lambda context: None, [SAVED])

    for step in range(10_003):
        manager.fire_hook(SAVED, checkpoint_id=str(step))

    runs = manager.timeline()
    assert (len(runs), runs[0].checkpoint_id) == (10_000, "3")


def test_statistics_add_up(manager):
    answers = iter([None, False, {"skipped": True}, None])

    def each(context):
        answer = next(answers)
        if context.get("fail"):
            raise ValueError("told to")
        return answer

    manager.register_hook("each", each, [SAVE])
    for fail in (False, False, False, True):
        manager.fire_hook(SAVE, fail=fail)

    told = manager.get_performance_stats()["each"]
    assert {key: told[key] for key in ("total_calls", "failed_calls", "vetoes", "skipped", "timeouts")} == {
        "total_calls": 4,
        "failed_calls": 1,
        "vetoes": 1,
        "skipped": 1,
        "timeouts": 0,
    }
    assert told["min_time"] <= told["avg_time"] <= told["max_time"] <= told["total_time"]
    assert manager.get_performance_stats("each") == told
    assert manager.get_performance_stats("nobody") == {}


# --- a pool that died ------------------------------------------------------------------------------------------------

NO_THREADS = """
import json, resource, threading
from model_checkpoint.hooks import HookManager, HookPriority
manager = HookManager()
heard = []
manager.register_hook("timed", heard.append, ["before_checkpoint_save"], HookPriority.CRITICAL, timeout=30)
manager.register_hook("behind", heard.append, ["before_checkpoint_save"], async_execution=True)
manager.register_hook("here", lambda context: heard.append("here"), ["before_checkpoint_save"])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
threading.stack_size(1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)
result = manager.fire_hook("before_checkpoint_save", step=1)
print(json.dumps([bool(result), heard, sorted((each.hook, each.kind.value) for each in result.errors),
                  manager.get_pool_stats()["pool_failures"], len(manager.dead_letters())]))
"""


def test_when_the_system_has_no_thread_it_is_counted_and_told_and_the_save_goes_on():
    out = subprocess.run([sys.executable, "-c", NO_THREADS], capture_output=True, text=True, check=True)

    assert out.stdout.strip() == '[true, ["here"], [["behind", "pool"], ["timed", "pool"]], 2, 2]'


def test_a_call_without_a_thread_is_not_called_rather_than_called_without_its_limit():
    """So it reads in the timeline; a hook with a limit that is run without one could hang a save."""
    out = subprocess.run(
        [sys.executable, "-c", NO_THREADS + "\nprint(*[run.outcome.value for run in manager.timeline()], sep=',')"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert out.stdout.splitlines()[1] == "not called,done,not called"


@pytest.mark.parametrize("event", list(HookEvent))
def test_every_failure_has_an_outcome_in_the_timeline(event):
    with HookManager() as manager:
        manager.register_hook("fails", lambda context: 1 / 0, [event])
        manager.fire_hook(event)

        assert [run.outcome for run in manager.timeline()] == [HookOutcome.FAILED]
