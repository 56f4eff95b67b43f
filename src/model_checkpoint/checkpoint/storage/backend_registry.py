"""Backend registry: from a name, class, instance or entry point to a backend.

A package offers a backend to everybody who installs it by an entry point of the group ``model_checkpoint.backends``::

    [project.entry-points."model_checkpoint.backends"]
    mine = "my_package.backends:MyBackend"
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from model_checkpoint.backend import BackendInvalid, loader_of, saver_of
from model_checkpoint.checkpoint.storage.native import NativeBackend
from model_checkpoint.checkpoint.storage.safetensors_files import SafeTensorsBackend
from model_checkpoint.checkpoint.storage.torch_files import TorchBackend
from model_checkpoint.errors import CheckpointException, ExceptionType

GROUP = "model_checkpoint.backends"

_known: dict[str, Any] = {
    "native": NativeBackend,
    "pytorch": TorchBackend,
    "torch": TorchBackend,
    "safetensors": SafeTensorsBackend,
}


class UnknownBackend(CheckpointException, ValueError):
    """No backend has that name."""

    default_type = ExceptionType.VALIDATION_FAILED


def register_backend(name: str, backend: Any) -> None:
    """Let ``find_backend(name)`` give ``backend``, a class or an instance, in this process.

    Example:
        >>> register_backend("mine", NativeBackend)
        >>> find_backend("mine").get_name()
        'native'
    """
    find_backend(backend)
    _known[name] = backend


def find_backend(wanted: Any = "native") -> Any:
    """Return the backend that ``wanted`` names or is, ready to use.

    Example:
        >>> find_backend("pytorch").get_file_extension()
        '.pt'
        >>> find_backend("floppy")
        Traceback (most recent call last):
        model_checkpoint.checkpoint.storage.backend_registry.UnknownBackend: no storage backend is called 'floppy'; ...
    """
    backend = _named(wanted) if isinstance(wanted, str) else wanted
    made = _made(backend) if isinstance(backend, type) else backend
    saver_of(made)
    loader_of(made)
    return made


def name_of(backend: Any) -> str:
    """How checkpoints remember a backend."""
    told = getattr(backend, "get_name", None)
    return str(told()) if callable(told) else type(backend).__name__


def extension_of(backend: Any) -> str:
    """What the name of its file ends in."""
    told = getattr(backend, "get_file_extension", None)
    return str(told()) if callable(told) else ""


def _named(name: str) -> Any:
    if name in _known:
        return _known[name]
    offered = {point.name: point for point in entry_points(group=GROUP)}
    if name in offered:
        return offered[name].load()
    raise UnknownBackend(
        f"no storage backend is called {name!r}; there are {', '.join(sorted({*_known, *offered}))}. Give a class or "
        "an instance, or offer one by register_backend or an entry point."
    )


def _made(backend: type) -> Any:
    try:
        return backend()
    except TypeError as error:
        raise BackendInvalid(
            f"{backend.__name__}: could not be made without arguments ({error}). Give an instance instead."
        ) from error
