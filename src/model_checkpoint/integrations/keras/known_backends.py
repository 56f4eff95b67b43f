"""Known backends: versions and backends of Keras that are known to resume exactly."""

from __future__ import annotations

import keras

from model_checkpoint.integrations.errors import TrainerUnknown
from model_checkpoint.integrations.known_versions import require_known

_BACKENDS = ("torch", "jax")


def require_keras() -> str:
    """The backend in use, if it and this version of Keras are known.

    Example:
        >>> require_keras() in ("torch", "jax")
        True
    """
    require_known("keras", keras.__version__)
    backend = str(keras.backend.backend())
    if backend not in _BACKENDS:
        raise TrainerUnknown(
            f"keras on {backend}: not known to resume exactly, since it reads data in threads of its own; known are "
            f"{' and '.join(_BACKENDS)}. Set KERAS_BACKEND before keras is imported. Nothing was changed."
        )
    return backend
