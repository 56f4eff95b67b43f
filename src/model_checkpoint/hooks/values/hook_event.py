"""Hook events: the moments that can be heard, and the order in which hooks hear of one."""

from __future__ import annotations

from enum import Enum, IntEnum

from model_checkpoint.hooks.errors import HookInvalid
from model_checkpoint.name_lists import did_you_mean


class HookEvent(Enum):
    """A moment in the life of a checkpoint. Each is really fired; a hook may say no to those before something.

    Example:
        >>> HookEvent.BEFORE_CHECKPOINT_SAVE.method, HookEvent.ON_ERROR.method
        ('on_before_checkpoint_save', 'on_error')
        >>> HookEvent.BEFORE_CHECKPOINT_SAVE.may_be_vetoed, HookEvent.AFTER_CHECKPOINT_SAVE.may_be_vetoed
        (True, False)
    """

    BEFORE_CHECKPOINT_SAVE = "before_checkpoint_save"
    AFTER_CHECKPOINT_SAVE = "after_checkpoint_save"
    BEFORE_CHECKPOINT_LOAD = "before_checkpoint_load"
    AFTER_CHECKPOINT_LOAD = "after_checkpoint_load"
    BEFORE_CHECKPOINT_DELETE = "before_checkpoint_delete"
    AFTER_CHECKPOINT_DELETE = "after_checkpoint_delete"
    BEFORE_INTEGRITY_CHECK = "before_integrity_check"
    AFTER_INTEGRITY_CHECK = "after_integrity_check"
    ON_INTEGRITY_FAILURE = "on_integrity_failure"
    ON_BEST_MODEL_UPDATE = "on_best_model_update"
    BEFORE_RETENTION_POLICY = "before_retention_policy"
    AFTER_RETENTION_POLICY = "after_retention_policy"
    BEFORE_MIGRATION = "before_migration"
    AFTER_MIGRATION = "after_migration"
    BEFORE_API_REQUEST = "before_api_request"
    AFTER_API_REQUEST = "after_api_request"
    ON_ERROR = "on_error"

    @property
    def method(self) -> str:
        """The method of a hook object that hears of this event."""
        return self.value if self.value.startswith("on_") else f"on_{self.value}"

    @property
    def may_be_vetoed(self) -> bool:
        """Whether nothing has happened yet, so that a hook can still prevent it."""
        return self.value.startswith("before_")


class HookPriority(IntEnum):
    """Who hears of an event first; hooks of one priority hear of it in the order they were registered.

    Example:
        >>> sorted([HookPriority.BACKGROUND, HookPriority.CRITICAL, HookPriority.NORMAL])
        [<HookPriority.CRITICAL: 0>, <HookPriority.NORMAL: 50>, <HookPriority.BACKGROUND: 100>]
    """

    CRITICAL = 0
    HIGH = 10
    NORMAL = 50
    LOW = 90
    BACKGROUND = 100


def event_named(event: HookEvent | str) -> HookEvent:
    """The event itself, or the one of that name in any case.

    Raises:
        HookInvalid: there is no such event; the message says which one may be meant.

    Example:
        >>> event_named("BEFORE_CHECKPOINT_SAVE") is event_named(HookEvent.BEFORE_CHECKPOINT_SAVE)
        True
        >>> event_named("before_checkpoint_sav")
        Traceback (most recent call last):
        ...
        model_checkpoint.hooks.errors.HookInvalid: 'before_checkpoint_sav' is no event. Did you mean
        'BEFORE_CHECKPOINT_SAVE'?
    """
    if isinstance(event, HookEvent):
        return event
    if isinstance(event, str) and event.upper() in HookEvent.__members__:
        return HookEvent[event.upper()]
    raise HookInvalid(f"{event!r} is no event. {did_you_mean(str(event).upper(), HookEvent.__members__)}")
