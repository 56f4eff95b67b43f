"""Errors of mixed precision: each derives from the one tree and from the builtin its callers expect."""

from __future__ import annotations

from collections.abc import Sequence

from model_checkpoint.errors import CheckpointException, ExceptionType


class InvalidArgument(CheckpointException, ValueError):
    """A value that cannot be used: None, blank, of the wrong shape or out of range."""

    default_type = ExceptionType.VALIDATION_FAILED


class InvalidOptions(InvalidArgument):
    """Mixed-precision options that contradict themselves or leave their range."""


class UnknownParameter(CheckpointException, KeyError):
    """A parameter name the optimizer does not have."""

    default_type = ExceptionType.VALIDATION_FAILED


class UnsupportedOptimizer(CheckpointException, TypeError):
    """A base optimizer, closure or gradient that mixed precision cannot step correctly."""


class StepRefused(CheckpointException, RuntimeError):
    """A step that would train wrongly; nothing was changed."""


class WeightsChanged(StepRefused):
    """Training weights were written behind the optimizer's back and no longer follow their masters."""


class NonFiniteTraining(CheckpointException, ArithmeticError):
    """Gradients stay non-finite even in FP32; ``offenders`` names the parameters."""

    def __init__(self, message: str, checkpoint_path: str = "", *, offenders: Sequence[object] = ()) -> None:
        super().__init__(message, checkpoint_path)
        self.offenders = tuple(offenders)


class PendingGradients(CheckpointException, RuntimeError):
    """A checkpoint was asked for in the middle of a gradient-accumulation window."""

    default_type = ExceptionType.SAVE_FAILED


class CheckpointRefused(CheckpointException, ValueError):
    """A checkpoint that does not fit; ``findings`` lists every reason. Nothing was changed."""

    default_type = ExceptionType.VALIDATION_FAILED

    def __init__(self, message: str, checkpoint_path: str = "", *, findings: Sequence[object] = ()) -> None:
        super().__init__(message, checkpoint_path)
        self.findings = tuple(findings)
