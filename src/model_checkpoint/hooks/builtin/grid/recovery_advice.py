"""Recovery advice: what to do about an error."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import Any

from model_checkpoint.errors import CheckpointException, ExceptionType


def advice_for(error: BaseException | str | None, last_checkpoint: Mapping[str, Any] | None) -> list[str]:
    """What to do next, the most helpful first.

    Example:
        >>> advice_for(MemoryError("out of memory"), {"checkpoint_id": "c-7", "step": 700})
        ['Resume from checkpoint c-7 at step 700.', 'Memory ran out: use a smaller batch, recompute activations
        (auto_checkpoint), or train in 16 bits.']
        >>> advice_for(None, None)
        ['No checkpoint was saved: start anew, and save earlier.', 'The run ended without an error: look for a killed
        process (out of memory, preemption, a time limit).']
    """
    if last_checkpoint is None:
        first = "No checkpoint was saved: start anew, and save earlier."
    else:
        first = f"Resume from checkpoint {last_checkpoint.get('checkpoint_id')} at step {last_checkpoint.get('step')}."
    if error is None:
        return [first, _NO_WORDS]
    return [first, *(sentence for applies, sentence in _RULES if applies(error))]


_NO_WORDS = "The run ended without an error: look for a killed process (out of memory, preemption, a time limit)."


def _says(*words: str) -> Callable[[BaseException | str], bool]:
    return lambda error: any(word in f"{type(error).__name__}: {error}".lower() for word in words)


def _no_space(error: BaseException | str) -> bool:
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or _says("no space left", "disk full")(error)


def _no_memory(error: BaseException | str) -> bool:
    return isinstance(error, MemoryError) or _says("out of memory", "memoryerror")(error)


def _damaged(error: BaseException | str) -> bool:
    if isinstance(error, CheckpointException) and error.type is ExceptionType.CORRUPTED_CHECKPOINT:
        return True
    return _says("checksum", "corrupt", "truncated")(error)


def _not_a_number(error: BaseException | str) -> bool:
    return isinstance(error, FloatingPointError) or _says(" nan", "nan ", "not finite", "infinite")(error)


def _timed_out(error: BaseException | str) -> bool:
    return isinstance(error, TimeoutError) or _says("timed out", "timeout")(error)


def _unreachable(error: BaseException | str) -> bool:
    return isinstance(error, ConnectionError) or _says("connection", "unreachable", "name resolution")(error)


_RULES: tuple[tuple[Callable[[BaseException | str], bool], str], ...] = (
    (_no_memory, "Memory ran out: use a smaller batch, recompute activations (auto_checkpoint), or train in 16 bits."),
    (_no_space, "The disk is full: prune old checkpoints (`mckpt gc`, retention), or save elsewhere."),
    (_damaged, "Something stored is damaged: run `mckpt verify`, repair it, or load with fallback=True."),
    (_not_a_number, "Numbers left their range: go back further than the last checkpoint, and lower the learning rate."),
    (_timed_out, "Something took too long: look at the network, the disk, and at ranks that hang."),
    (_unreachable, "Something could not be reached: saved checkpoints are safe; try again when it is back."),
)
