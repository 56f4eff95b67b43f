"""Known versions: a trainer whose insides were never looked at is refused by name, not resumed by luck."""

from __future__ import annotations

from collections.abc import Sequence

from model_checkpoint.integrations.errors import TrainerUnknown


def require_known(package: str, version: str, known: Sequence[str]) -> None:
    """Refuse a version of a package that belongs to none of the ``known`` series.

    Example:
        >>> require_known("accelerate", "1.15.3", ["1.15"])
        >>> require_known("accelerate", "1.2.0", ["1.15"])
        Traceback (most recent call last):
        model_checkpoint.integrations.errors.TrainerUnknown: accelerate 1.2.0 is not known to resume exactly, ...
    """
    if any(version == series or version.startswith(f"{series}.") for series in known):
        return
    series = ", ".join(f"{one}.x" for one in known)
    raise TrainerUnknown(
        f"{package} {version} is not known to resume exactly, because what it does inside may differ; known is "
        f"{series}. Install that: pip install '{package}~={known[-1]}.0'."
    )
