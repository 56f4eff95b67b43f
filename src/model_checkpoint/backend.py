"""Backend: how a state becomes files and comes back, where somebody else than the engine writes them.

A backend only turns a state into bytes under the path it is given, and back. Everything else is done around it: the
path lies in a stage nobody sees, what was written is digested, flushed and committed as one checkpoint, and nothing is
read back by a backend before its digests were checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from model_checkpoint.errors import CheckpointException, ExceptionType

_VERBS = {"save": ("save_checkpoint", "save"), "load": ("load_checkpoint", "load")}


class BackendInvalid(CheckpointException, TypeError):
    """Something was given as a backend that cannot save, or cannot load."""

    default_type = ExceptionType.VALIDATION_FAILED


class BaseStorageBackend:
    """What a backend is written on: define ``save_checkpoint`` and ``load_checkpoint``, or ``save`` and ``load``.

    ``save_checkpoint(data, path)`` writes one file at ``path``, a folder there, or files beside it; what it returns may
    be None, or a mapping that is kept with the checkpoint. ``load_checkpoint(path, device=None)`` gives the state back.

    Example:
        >>> import json, pathlib, tempfile
        >>> class JsonBackend(BaseStorageBackend):
        ...     def save(self, data, path):
        ...         pathlib.Path(path).write_text(json.dumps(data))
        ...     def load(self, path):
        ...         return json.loads(pathlib.Path(path).read_text())
        >>> path = f"{tempfile.mkdtemp()}/state"
        >>> JsonBackend().save_checkpoint({"epoch": 3}, path)
        >>> JsonBackend().load_checkpoint(path)
        {'epoch': 3}
    """

    def get_file_extension(self) -> str:
        """What the name of the file it is given to write ends in, such as ``".pt"``."""
        return ""

    def get_name(self) -> str:
        """How a checkpoint remembers which backend wrote it."""
        return type(self).__name__

    def save_checkpoint(self, data: Any, path: str) -> Any:
        """Write ``data`` at ``path``."""
        return saver_of(self)(data, path)

    def load_checkpoint(self, path: str, device: Any = None) -> Any:
        """Give back what was written at ``path``, with its arrays on ``device`` if one is named."""
        return loader_of(self)(path, device)

    def save(self, data: Any, path: str) -> Any:
        """Another name of :meth:`save_checkpoint`."""
        return saver_of(self)(data, path)

    def load(self, path: str, device: Any = None) -> Any:
        """Another name of :meth:`load_checkpoint`."""
        return loader_of(self)(path, device)


StorageBackend = BaseStorageBackend


def saver_of(backend: Any) -> Callable[[Any, str], Any]:
    """How ``backend`` writes; raise :class:`BackendInvalid` if it does not say."""
    own: Callable[[Any, str], Any] = _own(backend, "save")
    return own


def loader_of(backend: Any) -> Callable[[str, Any], Any]:
    """How ``backend`` reads, as a function of path and device; raise :class:`BackendInvalid` if it does not say.

    Example:
        >>> loader_of(BaseStorageBackend())
        Traceback (most recent call last):
        model_checkpoint.backend.BackendInvalid: BaseStorageBackend: defines neither load_checkpoint nor load. ...
    """
    own = _own(backend, "load")
    if _takes_device(own):
        return lambda path, device: own(path, device=device)

    def load(path: str, device: Any) -> Any:
        if device is not None:
            raise BackendInvalid(
                f"{type(backend).__name__}.{own.__name__} takes no device, but device={device!r} was asked for. "
                "Leave device= out, or give the method that parameter.",
                path,
            )
        return own(path)

    return load


def _own(backend: Any, verb: str) -> Any:
    """The method by which a backend itself does ``verb``; that of the base class would only ask again."""
    for name in _VERBS[verb]:
        method = getattr(backend, name, None)
        if callable(method) and getattr(type(backend), name, None) is not getattr(BaseStorageBackend, name):
            return method
    raise BackendInvalid(
        f"{type(backend).__name__}: defines neither {' nor '.join(_VERBS[verb])}. "
        f"A backend needs {_VERBS['save'][0]}(data, path) and {_VERBS['load'][0]}(path, device=None)."
    )


def _takes_device(method: Callable[..., Any]) -> bool:
    parameters = inspect.signature(method).parameters.values()
    return any(one.name == "device" or one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
