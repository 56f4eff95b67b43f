"""Firing: order, vetoes, conditions, and what happens to the data."""

import json
from timeit import repeat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_checkpoint.hooks import (
    HookContext,
    HookEvent,
    HookManager,
    HookPriority,
    HookResult,
    HookVetoed,
)

SAVE, SAVED = HookEvent.BEFORE_CHECKPOINT_SAVE, HookEvent.AFTER_CHECKPOINT_SAVE
PRIORITIES = list(HookPriority)


@settings(deadline=None)
@given(st.lists(st.sampled_from(PRIORITIES), max_size=12))
def test_hooks_are_called_by_priority_then_by_registration(priorities):
    heard, manager = [], HookManager()
    for number, priority in enumerate(priorities):
        manager.register_hook(str(number), lambda _, number=number: heard.append(number), [SAVE], priority)

    manager.fire_hook(SAVE)

    assert heard == sorted(range(len(priorities)), key=lambda number: (priorities[number], number))


def test_the_five_priorities_are_called_from_critical_to_background(manager):
    heard = []
    for priority in reversed(PRIORITIES):
        manager.register_hook(priority.name, lambda _, name=priority.name: heard.append(name), [SAVE], priority)

    manager.fire_hook(SAVE)

    assert heard == ["CRITICAL", "HIGH", "NORMAL", "LOW", "BACKGROUND"]


@pytest.mark.parametrize(
    "no",
    [
        False,
        {"continue": False},
        {"continue": 0},
        np.bool_(False),
        np.array(1.0) > 2,
        HookResult(event=SAVE, stopped_by="inner"),
    ],
)
def test_a_hook_says_no_and_the_rest_is_not_called(manager, no):
    heard = []
    manager.register_hook("guard", lambda context: no, [SAVE], HookPriority.HIGH)
    manager.register_hook("after", heard.append, [SAVE])

    result = manager.fire_hook(SAVE)

    assert (bool(result), result.success, result.stopped_by, heard) == (False, False, "guard", [])
    with pytest.raises(RuntimeError, match="hook 'guard' said no, so nothing was done"):
        result.raise_if_vetoed()


def test_a_comparison_of_torch_tensors_can_say_no(manager):
    torch = pytest.importorskip("torch")
    manager.register_hook("guard", lambda context: context.get("loss") < 1, [SAVE])

    assert manager.fire_hook(SAVE, loss=torch.tensor(2.0)).stopped_by == "guard"
    assert manager.fire_hook(SAVE, loss=torch.tensor(0.5))


@pytest.mark.parametrize("yes", [None, True, 0, "", [], {}, {"continue": True}, np.zeros(3), np.bool_(True)])
def test_everything_else_goes_on(manager, yes):
    manager.register_hook("guard", lambda context: yes, [SAVE])

    result = manager.fire_hook(SAVE)

    assert result
    result.raise_if_vetoed()


def test_a_critical_hook_that_fails_before_a_save_prevents_it_and_the_reason_is_told(manager):
    heard = []
    manager.register_hook("guard", lambda context: 1 / 0, [SAVE], HookPriority.CRITICAL)
    manager.register_hook("after", heard.append, [SAVE])

    result = manager.fire_hook(SAVE)

    assert (bool(result), result.stopped_by, heard) == (False, "guard", [])
    with pytest.raises(HookVetoed, match=r"hook 'guard' failed \(ZeroDivisionError: division by zero\)"):
        result.raise_if_vetoed()


@pytest.mark.parametrize("priority", [each for each in PRIORITIES if each is not HookPriority.CRITICAL])
def test_any_other_hook_that_fails_prevents_nothing(manager, priority):
    heard = []
    manager.register_hook("guard", lambda context: 1 / 0, [SAVE], priority)
    manager.register_hook("after", lambda context: heard.append(1), [SAVE], HookPriority.BACKGROUND)

    result = manager.fire_hook(SAVE)

    assert (bool(result), heard, [str(each) for each in result.errors]) == (
        True,
        [1],
        ["guard on BEFORE_CHECKPOINT_SAVE: ZeroDivisionError: division by zero"],
    )


@pytest.mark.parametrize("event", [event for event in HookEvent if not event.may_be_vetoed])
def test_what_has_happened_is_not_undone_by_a_critical_hook_that_fails(manager, event):
    heard = []
    manager.register_hook("guard", lambda context: 1 / 0, [event], HookPriority.CRITICAL)
    manager.register_hook("after", lambda context: heard.append(1), [event])

    result = manager.fire_hook(event)

    assert (bool(result), heard, len(result.errors)) == (True, [1], 1)


def test_updates_reach_the_next_hook_the_caller_and_the_callers_context(manager):
    manager.register_hook("first", lambda context: {"context_updates": {"n": context.get("n") + 1}}, [SAVE])
    manager.register_hook("second", lambda context: context.set("seen", context.get("n")), [SAVE])
    mine = HookContext(data={"n": 1}, checkpoint_id="c-1", user_data={"who": "me"})

    result = manager.fire_hook(SAVE, mine, extra=5)

    assert mine.data == result.context.data == {"n": 2, "seen": 2, "extra": 5}
    assert (result.context.event, result.context.checkpoint_id) == (SAVE, "c-1")


def test_a_hook_may_take_something_away(manager):
    manager.register_hook("drop", lambda context: context.data.pop("secret"), [SAVE])

    assert manager.fire_hook(SAVE, secret=1, step=2).context.data == {"step": 2}


def test_a_hook_that_fails_midway_leaves_nothing_in_the_data(manager):
    def half(context):
        context.set("half", "done")
        raise OSError("disk")

    manager.register_hook("half", half, [SAVE])

    assert manager.fire_hook(SAVE, step=2).context.data == {"step": 2}


@pytest.mark.parametrize("updates", [5, ["step"], {1: 2}])
def test_updates_that_are_no_dictionary_by_name_are_a_failure_of_the_hook(manager, updates):
    manager.register_hook("odd", lambda context: {"context_updates": updates}, [SAVE])

    result = manager.fire_hook(SAVE)

    assert result
    assert "context_updates is a dictionary by name" in str(result.errors[0])


def test_a_condition_decides_each_time(manager):
    manager.register_hook(
        "tell", lambda context: "heard", [SAVE], condition=lambda context: context.get("step", 0) % 2 == 0
    )

    assert [manager.fire_hook(SAVE, step=step).results for step in (1, 2)] == [{}, {"tell": "heard"}]


def test_a_condition_that_fails_is_a_failure_of_its_hook_alone(manager):
    manager.register_hook("tell", print, [SAVE], condition=lambda context: context.data["absent"])

    assert str(manager.fire_hook(SAVE).errors[0]).endswith("KeyError: 'absent'")


def test_a_disabled_hook_is_not_called_until_it_is_enabled(manager):
    manager.register_hook("tell", lambda context: 1, [SAVE])

    manager.disable_hook("tell")
    silent = manager.fire_hook(SAVE).results
    manager.enable_hook("tell")

    assert (silent, manager.fire_hook(SAVE).results) == ({}, {"tell": 1})


def test_an_event_fired_by_a_hook_leaves_the_outer_context_alone(manager):
    seen = []

    def outer(context):
        manager.fire_hook(HookEvent.ON_ERROR, context)
        seen.append(context.event)

    manager.register_hook("outer", outer, [SAVE])
    manager.register_hook("inner", lambda context: seen.append(context.event), ["on_error"])

    manager.fire_hook(SAVE)

    assert seen == [HookEvent.ON_ERROR, SAVE]


def test_a_hook_may_register_and_unregister_others_while_it_is_called(manager):
    heard = []

    def once(context):
        manager.unregister_hook("once")
        manager.register_hook("next", lambda context: heard.append("next"), [SAVE])

    manager.register_hook("once", once, [SAVE])

    manager.fire_hook(SAVE)
    assert heard == []
    manager.fire_hook(SAVE)
    assert heard == ["next"]


# --- error handlers --------------------------------------------------------------------------------------------------


def test_an_error_handler_hears_of_the_error_and_the_failure_stands(manager):
    heard = []
    manager.register_hook(
        "guard",
        lambda c: 1 / 0,
        [SAVE],
        error_handler=lambda error, context: heard.append((error, context.get("step"))),
    )

    result = manager.fire_hook(SAVE, step=3)

    assert (type(heard[0][0]), heard[0][1], len(result.errors)) == (ZeroDivisionError, 3, 1)


@pytest.mark.parametrize(("answer", "stopped_by"), [(True, None), (False, "guard")])
def test_what_an_error_handler_returns_is_the_answer_of_the_hook(manager, answer, stopped_by):
    manager.register_hook(
        "guard", lambda c: 1 / 0, [SAVE], HookPriority.CRITICAL, error_handler=lambda error, context: answer
    )

    result = manager.fire_hook(SAVE)

    assert (result.stopped_by, result.errors, result.results) == (stopped_by, (), {"guard": answer})
    assert manager.dead_letters() == ()


def test_an_error_handler_that_fails_is_told_beside_the_first_error(manager):
    def worse(error, context):
        raise OSError("worse")

    manager.register_hook("guard", lambda c: 1 / 0, [SAVE], error_handler=worse)

    result = manager.fire_hook(SAVE)

    assert result.errors[0].error.__notes__ == ["its error handler failed too: OSError('worse')"]
    assert "its error handler failed too" in manager.dead_letters()[0].details


def test_only_interrupts_and_the_end_of_the_program_come_through(manager):
    def end(context):
        raise KeyboardInterrupt("by hand")

    manager.register_hook("end", end, [SAVE])

    with pytest.raises(KeyboardInterrupt, match="by hand"):
        manager.fire_hook(SAVE)


def test_a_firing_that_nobody_hears_costs_next_to_nothing(manager):
    """An event without hooks is part of every save; it must not be felt."""
    numbers = dict.fromkeys(map(str, range(100)), 1.5)
    heard, encoded = (
        min(repeat(call, number=500, repeat=7))
        for call in (lambda: manager.fire_hook(SAVE, step=1), lambda: json.dumps(numbers))
    )

    assert heard < encoded
