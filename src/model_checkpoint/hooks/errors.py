"""What can go wrong with hooks; each error is one of the tree and of the builtin its callers expect."""

from __future__ import annotations

from model_checkpoint.errors import CheckpointException, ExceptionType


class HookInvalid(CheckpointException, ValueError):
    """A hook, event, option or name that cannot be registered or fired; nothing was changed."""

    default_type = ExceptionType.VALIDATION_FAILED


class HookUnknown(CheckpointException, KeyError):
    """No hook has that name."""

    default_type = ExceptionType.VALIDATION_FAILED


class HookManagerClosed(CheckpointException, RuntimeError):
    """The manager was closed; it takes no more hooks."""


class HookVetoed(CheckpointException, RuntimeError):
    """A hook said no before anything was done; ``hook`` and ``event`` say which and when."""

    default_type = ExceptionType.VALIDATION_FAILED

    def __init__(self, message: str, *, hook: str = "", event: str = "") -> None:
        super().__init__(message)
        self.hook, self.event = hook, event


class HookTimeout(CheckpointException, TimeoutError):
    """A hook did not return in time; its thread was left behind and is counted until it does."""

    default_type = ExceptionType.TIMEOUT


class HookBusy(CheckpointException, RuntimeError):
    """A hook was not called, because its last call was left behind and still runs."""

    default_type = ExceptionType.TIMEOUT


class HookPoolDead(CheckpointException, RuntimeError):
    """A hook was not called, because there was no thread for it, or no room to wait for one."""

    default_type = ExceptionType.QUEUE_FULL


class RotationInvalid(CheckpointException, ValueError):
    """A quaternion is not finite, or too small to be made a rotation."""

    default_type = ExceptionType.VALIDATION_FAILED


class DeliveryFailed(CheckpointException, ConnectionError):
    """A notification did not arrive; ``passing`` says whether another try may help."""

    def __init__(self, message: str, *, passing: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.passing, self.retry_after = passing, retry_after


class UrlForbidden(CheckpointException, ValueError):
    """A notification would go where it must not: no https, a private address, or a URL that hides one."""

    default_type = ExceptionType.VALIDATION_FAILED


class SignatureInvalid(CheckpointException, ValueError):
    """A notification was not signed with this secret, was changed, or is too old."""

    default_type = ExceptionType.VALIDATION_FAILED
