"""Registering: both styles, every event, and nothing misspelt gets in."""

import pytest

from model_checkpoint.hooks import (
    BaseHook,
    ChainableHook,
    ConditionalHook,
    HookEvent,
    HookPriority,
    hook_handler,
)

SAVE = HookEvent.BEFORE_CHECKPOINT_SAVE


class Plain(BaseHook):
    def execute(self, context):
        return True


def test_a_hook_that_names_no_event_hears_every_one(manager):
    manager.register_hook(Plain())

    for event in HookEvent:
        assert manager.fire_hook(event).results == {"Plain": True}


def test_a_name_with_a_handler_hears_only_its_events(manager):
    manager.register_hook("tell", lambda context: "heard", [SAVE])

    assert manager.fire_hook(SAVE).results == {"tell": "heard"}
    assert manager.fire_hook(HookEvent.ON_ERROR).results == {}


@pytest.mark.parametrize("event", list(HookEvent))
def test_a_method_of_every_event_is_found(manager, event):
    hook = type("Each", (BaseHook,), {event.method: lambda self, context: context.event})()
    manager.register_hook(hook)

    assert manager.fire_hook(event).results == {"Each": event}
    assert sum(run.hook == "Each" for run in manager.timeline()) == 1


@pytest.mark.parametrize("event", list(HookEvent))
def test_an_event_may_be_named_in_any_case(manager, event):
    manager.register_hook("tell", lambda context: 1, events=[event.name.lower()])

    assert manager.fire_hook(event.name).results == {"tell": 1}


def test_methods_named_for_on_events_carry_on_once():
    assert HookEvent.ON_ERROR.method == "on_error"
    assert HookEvent.ON_INTEGRITY_FAILURE.method == "on_integrity_failure"


def test_a_method_of_its_own_takes_an_event_from_execute(manager):
    class Both(BaseHook):
        def execute(self, context):
            return "execute"

        def on_error(self, context):
            return "on_error"

    manager.register_hook(Both())

    assert manager.fire_hook("on_error").results == {"Both": "on_error"}
    assert manager.fire_hook(SAVE).results == {"Both": "execute"}


def test_events_of_an_object_limit_execute(manager):
    class Some(BaseHook):
        events = (HookEvent.ON_ERROR,)

        def execute(self, context):
            return 1

    manager.register_hook(Some())

    assert [hook.events for hook in manager.list_hooks()] == [(HookEvent.ON_ERROR,)]


def test_on_init_is_called_once_before_the_first_event_and_on_cleanup_once_after_the_last(manager):
    heard = []

    class Life(BaseHook):
        def on_init(self):
            heard.append("init")

        def on_error(self, context):
            heard.append("event")

        def on_cleanup(self):
            heard.append("cleanup")

    manager.register_hook(Life())
    manager.fire_hook("on_error")
    manager.unregister_hook("Life")
    manager.fire_hook("on_error")

    assert heard == ["init", "event", "cleanup"]


@pytest.mark.parametrize("end", ["close", "clear_hooks"])
def test_closing_and_clearing_clean_up(manager, end):
    heard = []
    hook = type("Life", (BaseHook,), {"execute": lambda *_: None, "on_cleanup": lambda self: heard.append(1)})()
    manager.register_hook(hook)

    getattr(manager, end)()

    assert heard == [1]
    assert manager.list_hooks() == []


def test_a_hook_that_cannot_begin_is_not_registered(manager):
    class Broken(BaseHook):
        def on_init(self):
            raise ConnectionError("no server")

        def execute(self, context): ...

    with pytest.raises(ConnectionError, match="no server"):
        manager.register_hook(Broken())
    assert manager.list_hooks() == []


def test_a_hook_that_cannot_clean_up_is_gone_all_the_same(manager, caplog):
    class Broken(BaseHook):
        def execute(self, context): ...

        def on_cleanup(self):
            raise ConnectionError("no server")

    manager.register_hook(Broken())
    manager.unregister_hook("Broken")

    assert manager.list_hooks() == []
    assert "failed to clean up" in caplog.text


# --- what is told ----------------------------------------------------------------------------------------------------


def test_hooks_are_listed_with_all_that_was_chosen(manager):
    manager.register_hook(
        "tell", print, [SAVE], HookPriority.HIGH, 0.5, True, condition=lambda context: True, owner="ops"
    )
    manager.disable_hook("tell")

    (hook,) = manager.list_hooks()
    assert (hook.name, hook.events, hook.priority, hook.timeout) == ("tell", (SAVE,), HookPriority.HIGH, 0.5)
    assert (hook.async_execution, hook.conditional, hook.enabled, hook.metadata) == (
        True,
        True,
        False,
        {"owner": "ops"},
    )


def test_hooks_of_an_event_are_listed_in_the_order_of_their_calls(manager):
    for name, priority in (
        ("low", HookPriority.LOW),
        ("first", HookPriority.CRITICAL),
        ("normal", HookPriority.NORMAL),
    ):
        manager.register_hook(name, print, [SAVE], priority)
    manager.register_hook("other", print, ["on_error"])

    assert [hook.name for hook in manager.list_hooks(SAVE)] == ["first", "normal", "low"]


def test_clearing_one_event_leaves_the_others(manager):
    manager.register_hook("both", lambda context: 1, [SAVE, HookEvent.ON_ERROR])
    manager.register_hook("one", lambda context: 1, [SAVE])

    manager.clear_hooks(SAVE)

    assert [hook.name for hook in manager.list_hooks()] == ["both"]
    assert manager.fire_hook(SAVE).results == {}
    assert manager.fire_hook(HookEvent.ON_ERROR).results == {"both": 1}


def test_marks_of_a_method_go_before_the_choices_of_its_object(manager):
    class Marked(BaseHook):
        priority = HookPriority.LOW

        @hook_handler([SAVE, HookEvent.ON_ERROR], priority=HookPriority.CRITICAL)
        def anything(self, context):
            return context.event.name

        def on_after_checkpoint_save(self, context):
            return "own"

    manager.register_hook(Marked())

    assert manager.fire_hook(SAVE).results == {"Marked": "BEFORE_CHECKPOINT_SAVE"}
    assert manager.list_hooks(SAVE)[0].priority is HookPriority.CRITICAL
    assert manager.timeline()[0].priority is HookPriority.CRITICAL
    manager.fire_hook("after_checkpoint_save")
    assert manager.timeline()[1].priority is HookPriority.LOW


def test_what_is_chosen_at_registration_goes_before_the_object(manager):
    class Own(BaseHook):
        priority = HookPriority.LOW
        timeout = 5.0

        def execute(self, context): ...

    manager.register_hook(Own(), events=[SAVE], priority=HookPriority.HIGH, timeout=0.5)

    (hook,) = manager.list_hooks()
    assert (hook.events, hook.priority, hook.timeout) == ((SAVE,), HookPriority.HIGH, 0.5)


def test_an_object_needs_no_base_class(manager):
    class Plain:
        def on_error(self, context):
            return "heard"

    manager.register_object_hooks(Plain())

    assert manager.fire_hook("on_error").results == {"Plain": "heard"}


def test_a_chainable_hook_hands_the_data_on_and_may_end_the_chain(manager):
    class Add(ChainableHook):
        def process_data(self, data, context):
            return {"n": data["n"] + 1}

        def should_continue(self, context):
            return context.get("n") < 2

    for name in ("a", "b", "c"):
        hook = Add()
        hook.name = name
        manager.register_hook(hook)

    result = manager.fire_hook(SAVE, n=0)
    assert (result.context.get("n"), result.stopped_by) == (2, "b")


def test_a_conditional_hook_is_asked_each_time(manager):
    class Even(ConditionalHook):
        def should_execute(self, context):
            return context.get("step") % 2 == 0

        def execute(self, context):
            return context.get("step")

    manager.register_hook(Even())

    assert [manager.fire_hook(SAVE, step=step).results for step in range(3)] == [{"Even": 0}, {}, {"Even": 2}]
    assert [run.outcome.value for run in manager.timeline()] == ["done", "skipped", "done"]
