"""Tensor figures: the figures of one tensor of a checkpoint, verified, a bounded piece of memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from model_checkpoint.engine.reading.figures.number_figures import (
    Block,
    NumberFigures,
    blocks_of,
    is_real,
    sum_up,
)
from model_checkpoint.engine.reading.tensor_reader import TensorReader
from model_checkpoint.errors import UnsupportedType
from model_checkpoint.plan import Index

_AT_ONCE = 64 << 20  # bytes of a tensor in memory; one that is larger is read twice


def tensor_figures(
    tensors: TensorReader, name: str, *, bins: int, advance: Callable[[int], None] = lambda nbytes: None
) -> NumberFigures | None:
    """Read one tensor and sum it up; None where its values are no real numbers, or NumPy has no such dtype.

    ``advance`` is told of bytes as they are looked at.

    Raises:
        CorruptedCheckpoint: What is stored is not what was saved.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-figures", {"w": np.array([0.0, 1.0, 2.0, np.nan])}, step=1)
        >>> with TensorReader("memory://doc-figures") as tensors:
        ...     figures = tensor_figures(tensors, "w", bins=2)
        >>> figures.mean, figures.nan, figures.histogram
        (1.0, 1, (1, 2))
    """
    try:
        pieces = _pieces(tensors, name)
        return _of_whole(tensors, name, bins) if len(pieces) == 1 else _of_pieces(tensors, name, pieces, bins)
    except UnsupportedType:
        return None
    finally:
        advance(tensors.nbytes(name))


def _of_whole(tensors: TensorReader, name: str, bins: int) -> NumberFigures | None:
    whole = tensors.array(name)
    return sum_up(lambda: blocks_of(whole), bins) if is_real(whole.dtype) else None


def _of_pieces(tensors: TensorReader, name: str, pieces: list[Index], bins: int) -> NumberFigures | None:
    from model_checkpoint.engine.reading.slices import load_slice  # few tensors are that large

    def blocks() -> Iterator[Block]:
        for index in pieces:
            yield from blocks_of(np.asarray(load_slice(tensors.info, name, index, framework="numpy")))

    first = np.asarray(load_slice(tensors.info, name, (slice(0, 1),), framework="numpy"))
    return sum_up(blocks, bins) if is_real(first.dtype) else None


def _pieces(tensors: TensorReader, name: str) -> list[Index]:
    """Rows that fit into memory together; a tensor without rows is one piece."""
    shape, nbytes = tensors.specs[name].shape, tensors.nbytes(name)
    if nbytes <= _AT_ONCE or not shape:
        return [...]
    rows = max(1, _AT_ONCE * shape[0] // nbytes)
    return [(slice(start, start + rows),) for start in range(0, shape[0], rows)]
