"""What can go wrong with activations kept, dropped or computed again."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError

from model_checkpoint.errors import CheckpointException, CorruptedCheckpoint, ExceptionType


class LayerIdInvalid(CheckpointException, ValueError):
    """A layer id is blank or no string."""

    default_type = ExceptionType.VALIDATION_FAILED


class LayerExists(CheckpointException, ValueError):
    """The layer id is taken."""

    default_type = ExceptionType.VALIDATION_FAILED


class LayerNotFound(CheckpointException, KeyError):
    """Nothing is stored or registered under that layer id."""

    default_type = ExceptionType.LOAD_FAILED


class ActivationInvalid(CheckpointException, ValueError):
    """An activation is missing, or cannot be kept where it should go."""

    default_type = ExceptionType.VALIDATION_FAILED


class SettingInvalid(CheckpointException, ValueError):
    """An argument or a configuration field is outside its range."""

    default_type = ExceptionType.VALIDATION_FAILED


class ClosedError(CheckpointException, RuntimeError):
    """The object was closed and does nothing more."""


class RecomputationException(CheckpointException, RuntimeError):  # the name users of the seed API look for
    """A recompute function failed, or gave nothing; ``layer_id`` says whose, ``inner_exception`` why.

    Example:
        >>> error = RecomputationException("block3: failed", layer_id="block3")
        >>> error.layer_id, error.inner_exception
        ('block3', None)
    """

    def __init__(
        self, message: str, inner_exception: BaseException | None = None, *, layer_id: str | None = None
    ) -> None:
        super().__init__(message, inner_exception=inner_exception)
        self.layer_id = layer_id


class DependencyCycle(RecomputationException):
    """Layers need each other in a circle; ``cycle`` lists them, the first one again at the end."""

    def __init__(self, message: str, *, cycle: Sequence[str] = ()) -> None:
        super().__init__(message, layer_id=cycle[0] if cycle else None)
        self.cycle = tuple(cycle)


class RecomputationCancelled(RecomputationException, CancelledError):
    """The work was cancelled before it was done."""


class SpillDamaged(CorruptedCheckpoint):
    """A spilled activation does not read back as it was written."""
