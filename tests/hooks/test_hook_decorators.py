"""Decorators: the same for functions, methods and coroutines, and any may be put on any other."""

import asyncio

import pytest

from model_checkpoint.hooks import (
    BaseHook,
    HookContext,
    HookEvent,
    HookInvalid,
    HookPriority,
    async_hook_handler,
    benchmark_hook,
    conditional_hook,
    hook_handler,
    retry_on_failure,
    suppress_errors,
    transform_result,
)

SAVE, SAVED = HookEvent.BEFORE_CHECKPOINT_SAVE, HookEvent.AFTER_CHECKPOINT_SAVE


def called(handler, context):
    value = handler(context)
    return asyncio.run(value) if asyncio.iscoroutine(value) else value


def plain(work):
    def handler(context):
        return work(context)

    return handler


def coroutine(work):
    async def handler(context):
        await asyncio.sleep(0)
        return work(context)

    return handler


KINDS = pytest.mark.parametrize("kind", [plain, coroutine])


@KINDS
def test_retry_tries_once_more_than_it_retries_and_raises_the_last_error(kind):
    tries = []

    def work(context):
        tries.append(1)
        raise OSError(f"try {len(tries)}")

    with pytest.raises(OSError, match="try 3"):
        called(retry_on_failure(max_retries=2, delay=0)(kind(work)), HookContext())


@KINDS
def test_retry_stops_at_success(kind):
    tries = []
    work = kind(lambda context: tries.append(1) or 1 / (len(tries) - 1))

    assert called(retry_on_failure(max_retries=5, delay=0)(work), HookContext()) == 1.0
    assert len(tries) == 2


@pytest.mark.parametrize("options", [{"max_retries": -1}, {"delay": -1}])
def test_retry_refuses_negative_numbers(options):
    with pytest.raises(HookInvalid, match="neither may be negative"):
        retry_on_failure(**options)


@KINDS
def test_a_condition_that_does_not_hold_skips(kind):
    handler = conditional_hook(lambda context: context.get("step") == 1)(kind(lambda context: "called"))

    assert called(handler, HookContext(data={"step": 1})) == "called"
    assert called(handler, HookContext(data={"step": 2})) == {"skipped": True}


@KINDS
def test_a_result_is_transformed(kind):
    assert called(transform_result(lambda value: value * 2)(kind(lambda context: 21)), HookContext()) == 42


@KINDS
def test_an_error_is_suppressed_and_told(kind, caplog):
    handler = suppress_errors(default_return={"continue": True})(kind(lambda context: 1 / 0))

    assert called(handler, HookContext()) == {"continue": True}
    assert "its error was suppressed: ZeroDivisionError" in caplog.text


@KINDS
def test_calls_are_timed_also_those_that_fail(kind):
    handler = benchmark_hook(keep=2)(kind(lambda context: 1 / context.get("n")))

    for n in (1, 2, 1):
        called(handler, HookContext(data={"n": n}))
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        called(handler, HookContext(data={"n": 0}))

    assert len(handler.timings) == 2
    assert all(seconds > 0 for seconds in handler.timings)


@KINDS
def test_decorators_may_be_stacked_and_the_mark_stays(manager, kind):
    tries = []
    handler = kind(lambda context: tries.append(1) or 1 / (len(tries) - 1))
    handler = retry_on_failure(max_retries=1, delay=0)(handler)
    handler = hook_handler([SAVE], priority=HookPriority.HIGH)(handler)
    handler = conditional_hook(lambda context: context.get("go"))(benchmark_hook()(handler))

    manager.register_hook("stacked", handler)

    assert [manager.fire_hook(SAVE, go=go).results for go in (False, True)] == [{}, {"stacked": 1.0}]
    assert manager.list_hooks()[0].priority is HookPriority.HIGH
    assert [run.outcome.value for run in manager.timeline()] == ["skipped", "done"]


def test_methods_are_decorated_like_functions(manager):
    class Hook(BaseHook):
        def __init__(self):
            self.tries = 0

        @conditional_hook(lambda context: context.get("go", True))
        @retry_on_failure(max_retries=1, delay=0)
        def on_before_checkpoint_save(self, context):
            self.tries += 1
            return 1 / (self.tries - 1)

        @async_hook_handler([SAVED], timeout=60)
        def later(self, context):
            self.later = "heard"

    hook = Hook()
    manager.register_hook(hook)

    assert manager.fire_hook(SAVE).results == {"Hook": 1.0}
    assert manager.fire_hook(SAVE, go=False).results == {}
    assert manager.fire_hook(SAVED).background == ("Hook",)
    manager.flush()
    assert hook.later == "heard"


def test_a_mark_with_a_misspelt_event_is_refused_where_it_is_written():
    with pytest.raises(HookInvalid, match=r"Did you mean 'AFTER_CHECKPOINT_SAVE'\?"):
        hook_handler(["after_checkpoint_saved"])
    with pytest.raises(HookInvalid, match="events are a list"):
        hook_handler("after_checkpoint_save")
