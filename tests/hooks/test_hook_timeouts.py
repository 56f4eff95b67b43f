"""Time limits: below one second, in any thread, without signals; who is late is left behind and counted."""

import asyncio
import contextvars
import signal
import threading

import pytest

from model_checkpoint.hooks import (
    FailureKind,
    HookContext,
    HookEvent,
    HookManager,
    HookOutcome,
    HookPriority,
    HookTimeout,
)

SAVE = HookEvent.BEFORE_CHECKPOINT_SAVE


def in_a_thread(call):
    """What a call gives in a thread that is not the main one."""
    out = []
    thread = threading.Thread(target=lambda: out.append(call()))
    thread.start()
    thread.join(60)
    return out[0]


def right_here(call):
    return call()


@pytest.mark.parametrize("where", [right_here, in_a_thread])
def test_a_hook_that_hangs_is_left_behind_after_a_fraction_of_a_second_in_any_thread(manager, gate, where):
    heard = []
    manager.register_hook("slow", gate, [SAVE], timeout=0.05)
    manager.register_hook("next", lambda context: heard.append(1), [SAVE])

    result = where(lambda: manager.fire_hook(SAVE))

    assert (gate.entered.is_set(), gate.left.is_set()) == (True, False)
    assert (bool(result), heard) == (True, [1])
    assert [failure.kind for failure in result.errors] == [FailureKind.TIMEOUT]
    assert isinstance(result.errors[0].error, TimeoutError)
    assert [run.outcome for run in manager.timeline()] == [HookOutcome.TIMED_OUT, HookOutcome.DONE]


@pytest.mark.parametrize("where", [right_here, in_a_thread])
def test_a_hook_that_is_in_time_is_heard_in_any_thread(manager, where):
    manager.register_hook("quick", lambda context: context.get("step") < 5, [SAVE], timeout=30)

    assert where(lambda: manager.fire_hook(SAVE, step=1))
    assert where(lambda: manager.fire_hook(SAVE, step=9)).stopped_by == "quick"


def test_no_alarm_is_set_or_lost(manager, gate):
    def mine(number, frame): ...

    before = signal.signal(signal.SIGALRM, mine)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1000)
        manager.register_hook("slow", gate, [SAVE], timeout=0.01)
        manager.fire_hook(SAVE)

        assert signal.getsignal(signal.SIGALRM) is mine
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 900
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_critical_hook_that_hangs_before_a_save_prevents_it(manager, gate):
    manager.register_hook("slow", gate, [SAVE], HookPriority.CRITICAL, timeout=0.01)

    assert manager.fire_hook(SAVE).stopped_by == "slow"


def test_who_comes_too_late_changes_nothing(manager, gate):
    manager.register_hook("slow", gate, [SAVE], timeout=0.01)

    result = manager.fire_hook(SAVE, step=1)
    gate.opened.set()
    assert gate.left.wait(60)

    assert result.context.data == {"step": 1}


def test_a_hook_that_hangs_costs_one_thread_however_often_it_is_fired(manager, gate):
    manager.register_hook("slow", gate, [SAVE], timeout=0.01)

    kinds = [manager.fire_hook(SAVE).errors[0].kind for _ in range(5)]

    assert kinds == [FailureKind.TIMEOUT] + [FailureKind.BUSY] * 4
    assert (gate.calls, manager.get_pool_stats()["left_behind"]) == (1, 1)
    assert manager.get_performance_stats("slow")["timeouts"] == 1


def test_a_hook_that_came_back_is_called_again_and_no_longer_counted(manager, gate):
    manager.register_hook("slow", gate, [SAVE], timeout=0.05)
    manager.fire_hook(SAVE)

    gate.opened.set()
    while manager.get_pool_stats()["left_behind"]:
        gate.left.wait(0.01)
    result = manager.fire_hook(SAVE)

    assert (result.results, gate.calls) == ({"slow": "through"}, 2)


def test_threads_are_used_again(manager):
    names = set()
    manager.register_hook("who", lambda context: names.add(threading.get_ident()), [SAVE], timeout=30)

    for _ in range(20):
        manager.fire_hook(SAVE)

    assert len(names) == 1


def test_context_variables_of_the_caller_are_seen_in_the_thread_of_the_hook(manager):
    variable = contextvars.ContextVar("variable")
    variable.set("mine")
    manager.register_hook("who", lambda context: variable.get(), [SAVE], timeout=30)

    assert manager.fire_hook(SAVE).results == {"who": "mine"}


def test_the_end_of_the_program_comes_through_a_time_limit_too(manager):
    def end(context):
        raise SystemExit(3)

    manager.register_hook("end", end, [SAVE], timeout=30)

    with pytest.raises(SystemExit, match="3"):
        manager.fire_hook(SAVE)


def test_an_interrupt_ends_the_wait_and_the_hook_is_left_behind(manager, gate):
    def interrupt(context):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return gate(context)

    manager.register_hook("slow", interrupt, [SAVE], timeout=60)

    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        manager.fire_hook(SAVE)
    assert manager.get_pool_stats()["left_behind"] == 1


# --- coroutines ------------------------------------------------------------------------------------------------------


async def veto(context):
    await asyncio.sleep(0)
    return context.get("step") < 5


class Later:
    """An object whose method is a coroutine."""

    async def on_before_checkpoint_save(self, context):
        return await veto(context)


@pytest.mark.parametrize("options", [{}, {"timeout": 30}])
def test_a_coroutine_is_awaited_and_may_say_no(manager, options):
    manager.register_hook("later", veto, [SAVE], **options)

    assert manager.fire_hook(SAVE, step=1).results == {"later": True}
    assert manager.fire_hook(SAVE, step=9).stopped_by == "later"


def test_a_method_that_is_a_coroutine_is_awaited(manager):
    manager.register_hook(Later())

    assert manager.fire_hook(SAVE, step=9).stopped_by == "Later"


def test_a_function_that_returns_a_coroutine_is_awaited(manager):
    manager.register_hook("later", lambda context: veto(context), [SAVE])

    assert manager.fire_hook(SAVE, step=9).stopped_by == "later"


def test_a_coroutine_is_awaited_inside_a_running_loop(manager):
    manager.register_hook("later", veto, [SAVE])

    async def train():
        return manager.fire_hook(SAVE, step=9)

    assert asyncio.run(train()).stopped_by == "later"


def test_a_coroutine_that_hangs_is_ended_and_leaves_no_thread(manager):
    ended = threading.Event()

    async def slow(context):
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    manager.register_hook("slow", slow, [SAVE], timeout=0.05)

    result = manager.fire_hook(SAVE)

    assert [failure.kind for failure in result.errors] == [FailureKind.TIMEOUT]
    assert ended.wait(60)
    while manager.get_pool_stats()["left_behind"]:
        ended.wait(0.01)


def test_a_coroutine_that_blocks_its_loop_is_left_behind_like_any_other(manager, gate):
    async def blocking(context):
        return gate(context)

    manager.register_hook("blocking", blocking, [SAVE], timeout=0.05)

    result = manager.fire_hook(SAVE)

    assert [failure.kind for failure in result.errors] == [FailureKind.TIMEOUT]
    assert manager.get_pool_stats()["left_behind"] == 1


def test_a_timeout_that_a_coroutine_raises_itself_is_its_own_error(manager):
    async def own(context):
        raise TimeoutError("of the server")

    manager.register_hook("own", own, [SAVE], timeout=30)

    (failure,) = manager.fire_hook(SAVE).errors
    assert (failure.kind, isinstance(failure.error, HookTimeout)) == (FailureKind.ERROR, False)


# --- nothing is copied -----------------------------------------------------------------------------------------------


class Uncopyable:
    """Stands for a model: copying it would take all memory."""

    def __copy__(self):
        raise AssertionError("copied")

    def __deepcopy__(self, memo):
        raise AssertionError("copied")

    def __reduce_ex__(self, protocol):
        raise AssertionError("pickled")


@pytest.mark.parametrize("options", [{}, {"timeout": 30}, {"async_execution": True}])
def test_a_model_is_handed_on_as_it_is_and_never_copied(options):
    model, seen = Uncopyable(), []
    with HookManager() as manager:
        manager.register_hook("look", lambda context: seen.append(context.get("model")), ["on_error"], **options)

        manager.fire_hook("on_error", HookContext(data={"model": model}))

    assert seen == [model]


def test_arrays_are_handed_on_as_they_are_whoever_is_called(manager):
    import numpy as np

    array, seen = np.zeros(1000), []
    for name, options in {"here": {}, "timed": {"timeout": 30}, "behind": {"async_execution": True}}.items():
        manager.register_hook(name, lambda context: seen.append(context.get("array")), ["on_error"], **options)

    manager.fire_hook("on_error", array=array)
    manager.flush(60)

    assert [each is array for each in seen] == [True] * 3
