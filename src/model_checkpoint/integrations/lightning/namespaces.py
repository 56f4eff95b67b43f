"""Namespaces: Lightning under its two names, and whether its version is known.

``lightning.pytorch`` and ``pytorch_lightning`` are two packages with classes of their own. A callback must be one of
the package whose trainer calls it.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from types import ModuleType

from model_checkpoint.integrations.known_versions import require_known

_NAMES = ("lightning.pytorch", "pytorch_lightning")


def callback_class(own: type) -> type:
    """``own`` as a checkpoint callback of every Lightning this program has imported."""
    found = [sys.modules[name] for name in _NAMES if name in sys.modules] or [import_module(_NAMES[0])]
    for one in found:
        require_known(one.__name__.partition(".")[0], one.__version__)
    return _joined(own, *found)


@cache
def _joined(own: type, *packages: ModuleType) -> type:
    bases = (own, *(one.callbacks.Checkpoint for one in packages))
    return type(own.__name__, bases, {"__module__": own.__module__, "__doc__": own.__doc__})
