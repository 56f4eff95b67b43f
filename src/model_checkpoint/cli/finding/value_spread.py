"""Value spread: how the values of each tensor of a checkpoint lie, verified."""

from __future__ import annotations

from collections.abc import Sequence

from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.option_checks import require, require_selection
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.reading.figures.number_figures import NumberFigures
from model_checkpoint.engine.reading.figures.tensor_figures import tensor_figures
from model_checkpoint.engine.reading.tensor_reader import TensorReader
from model_checkpoint.engine.root.refs import Reference
from model_checkpoint.plan import matcher

_BINS = 16


def value_spreads(
    ref: Reference, *, parts: str | Sequence[str] | None = None, progress: Listen = None
) -> dict[str, NumberFigures | None]:
    """Read the tensors of a checkpoint, or of some of its parts, and say how the values of each lie, by its name.

    There is None for one whose values are no real numbers.

    Example:
        >>> import model_checkpoint as mc, numpy as np
        >>> _ = mc.save("memory://doc-spread", {"w": np.array([0.0, 1.0, 2.0, np.nan])}, step=1)
        >>> figures = value_spreads("memory://doc-spread")["w"]
        >>> figures.mean, figures.nan, sum(figures.histogram)
        (1.0, 1, 3)
    """
    require(progress=progress)
    require_selection(parts=parts, rename=None, types=())
    with TensorReader(ref, matcher(parts)) as tensors, listening(progress, "reading") as emit:
        meter = Meter("figures", sum(map(tensors.nbytes, tensors.specs)), emit)
        return {name: tensor_figures(tensors, name, bins=_BINS, advance=meter.add) for name in tensors.specs}
