"""Refusals: nothing that would never be called gets in, and the right name is told."""

import pytest

from model_checkpoint.hooks import (
    BaseHook,
    HookEvent,
    HookInvalid,
    HookManagerClosed,
    HookPriority,
    HookUnknown,
    hook_handler,
)

SAVE = HookEvent.BEFORE_CHECKPOINT_SAVE


def with_method(name):
    return type("Misspelt", (BaseHook,), {name: lambda self, context: None})()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("on_before_checkpoint_sav", "on_before_checkpoint_save"),
        ("before_checkpoint_save", "on_before_checkpoint_save"),
        ("on_on_integrity_failure", "on_integrity_failure"),
        ("on_eror", "on_error"),
        ("on_initt", "on_init"),
        ("on_checkpoint_saved", "on_after_checkpoint_save"),
    ],
)
def test_a_misspelt_method_is_refused_with_the_right_name(manager, name, hint):
    with pytest.raises(HookInvalid, match=rf"Misspelt\.{name} would never be called. Did you mean '{hint}'\?"):
        manager.register_hook(with_method(name))
    assert manager.list_hooks() == []


@pytest.mark.parametrize("event", ["before_checkpoint_sve", "BEFORE_SAVE", "on_integrity_failur"])
def test_a_misspelt_event_is_refused_at_registration_and_at_firing(manager, event):
    with pytest.raises(HookInvalid, match=r"'tell': .* is no event. (Did you mean|There are)"):
        manager.register_hook("tell", print, events=[event])
    with pytest.raises(HookInvalid, match=r"is no event"):
        manager.fire_hook(event)


def test_an_object_with_handle_alone_is_refused_because_nothing_calls_it(manager):
    class Old(BaseHook):
        def handle(self, context): ...

    with pytest.raises(HookInvalid, match=r"Old has nothing to call. Its handle is called by nothing"):
        manager.register_hook(Old())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "", "handler": print, "events": [SAVE]}, "needs a name"),
        ({"name": "a"}, "with a name comes a handler"),
        ({"name": "a", "handler": print}, "events is a list such as"),
        ({"name": "a", "handler": print, "events": []}, "events is empty"),
        ({"name": "a", "handler": print, "events": "on_error"}, "events is a list such as"),
        ({"name": "a", "handler": print, "events": [SAVE], "timeout": 0}, "timeout is a number of seconds above 0"),
        ({"name": "a", "handler": print, "events": [SAVE], "timeout": "1"}, "timeout is a number of seconds above 0"),
        ({"name": "a", "handler": print, "events": [SAVE], "timeout": float("inf")}, "timeout is a number"),
        ({"name": "a", "handler": print, "events": [SAVE], "priority": 5}, "priority is one of HookPriority"),
        ({"name": "a", "handler": 5, "events": [SAVE]}, "handler is something to call"),
        ({"name": "a", "handler": lambda: None, "events": [SAVE]}, "is called with the context, but takes"),
        ({"name": "a", "handler": print, "events": [SAVE], "condition": lambda: True}, "condition .* the context"),
        ({"name": "a", "handler": print, "events": [SAVE], "error_handler": lambda e: 1}, "the error and the context"),
        ({"name": BaseHook}, "got the class BaseHook. Register an object"),
        ({"name": BaseHook()}, "BaseHook has nothing to call"),
        ({"name": BaseHook(), "handler": print}, "a handler comes with a name"),
        ({"name": with_method("on_error"), "events": [SAVE]}, "events are for execute"),
        ({"name": print}, "events is a list such as"),
    ],
)
def test_what_could_never_work_is_refused(manager, arguments, words):
    with pytest.raises(HookInvalid, match=words):
        manager.register_hook(**arguments)
    assert manager.list_hooks() == []


@pytest.mark.parametrize("word", ["condition", "error_handler"])
def test_a_condition_is_no_coroutine_because_every_coroutine_would_hold(manager, word):
    async def later(*_): ...

    with pytest.raises(HookInvalid, match=f"{word} is asked on the spot"):
        manager.register_hook("a", print, [SAVE], **{word: later})


def test_methods_that_share_an_event_answer_each_under_its_own_name(manager):
    class Two(BaseHook):
        @hook_handler([SAVE])
        def first(self, context):
            return 1

        def on_before_checkpoint_save(self, context):
            return 2

    manager.register_hook(Two())

    assert manager.fire_hook(SAVE).results == {"Two.first": 1, "Two.on_before_checkpoint_save": 2}
    manager.disable_hook("Two")
    assert manager.fire_hook(SAVE).results == {}


def test_a_critical_hook_that_could_veto_cannot_be_left_to_the_background(manager):
    with pytest.raises(HookInvalid, match="must be waited for, got async_execution=True"):
        manager.register_hook("a", print, [SAVE], HookPriority.CRITICAL, async_execution=True)


def test_a_name_is_taken_once(manager):
    manager.register_hook("tell", print, [SAVE])

    with pytest.raises(ValueError, match="'tell' is already registered"):
        manager.register_hook("tell", print, [SAVE])


def test_two_objects_of_a_class_need_names_of_their_own(manager):
    first, second = with_method("on_error"), with_method("on_error")
    second.name = "second"

    assert (manager.register_hook(first), manager.register_hook(second)) == ("Misspelt", "second")


@pytest.mark.parametrize("verb", ["unregister_hook", "enable_hook", "disable_hook"])
def test_a_name_nobody_has_is_told_with_a_likely_one(manager, verb):
    manager.register_hook("uploader", print, [SAVE])

    with pytest.raises(HookUnknown, match=r"no hook is called 'upload'. Did you mean 'uploader'"):
        getattr(manager, verb)("upload")


def test_a_closed_manager_takes_no_hook(manager):
    manager.close()

    with pytest.raises(HookManagerClosed, match="this manager is closed"):
        manager.register_hook("tell", print, [SAVE])


def test_properties_of_a_hook_object_are_not_touched(manager):
    class Lazy(BaseHook):
        @property
        def expensive(self):
            raise AssertionError("looked at")

        def on_error(self, context): ...

    assert manager.register_hook(Lazy()) == "Lazy"
