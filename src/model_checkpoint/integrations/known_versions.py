"""Known versions: a trainer whose insides were never looked at is refused by name, not resumed by luck."""

from __future__ import annotations

from model_checkpoint.integrations.errors import TrainerUnknown

KNOWN_SERIES = {  # the extras of the distribution install these
    "transformers": "5.22",
    "accelerate": "1.15",
    "lightning": "2.6",
    "pytorch_lightning": "2.6",
    "keras": "3.15",
}


def require_known(package: str, version: str) -> None:
    """Refuse a version of a package that is not of the series it is known in.

    Example:
        >>> require_known("accelerate", "1.15.3")
        >>> require_known("accelerate", "1.2.0")
        Traceback (most recent call last):
        model_checkpoint.integrations.errors.TrainerUnknown: accelerate 1.2.0 is not known to resume exactly, ...
    """
    known = KNOWN_SERIES[package]
    if version == known or version.startswith(f"{known}."):
        return
    raise TrainerUnknown(
        f"{package} {version} is not known to resume exactly, because what it does inside may differ; known is "
        f"{known}.x. Install that: pip install '{package}~={known}.0'."
    )
