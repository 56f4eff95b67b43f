"""Deposit: a state goes to a root through whichever backend, and comes back.

The native backend is the engine itself, which takes live objects as they are. Any other gets plain data: objects with a
``state_dict`` as that, under the keys its users know (``model_state_dict``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from model_checkpoint.backend import BackendInvalid, loader_of, saver_of
from model_checkpoint.checkpoint.storage.backend_registry import extension_of, find_backend, name_of
from model_checkpoint.checkpoint.storage.native import NativeBackend
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.reading.load import load
from model_checkpoint.engine.reading.opaque_load import load_opaque, written_by
from model_checkpoint.engine.writing.opaque_save import save_opaque
from model_checkpoint.engine.writing.save import save
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.tree.arrays.frameworks import object_kind, state_of
from model_checkpoint.tree.generators.rng import RngState

KNOWN_PARTS = ("model", "optimizer", "scheduler", "scaler", "dataloader", "rng")
_KEYS = {name: f"{name}_state_dict" for name in KNOWN_PARTS}
_NAMES = {key: name for name, key in _KEYS.items()}


def is_native(backend: Any) -> bool:
    """Whether the engine itself writes."""
    return isinstance(backend, NativeBackend)


def deposit(backend: Any, store: Store, parts: Mapping[str, Any], **options: Any) -> CheckpointInfo:
    """Save ``parts`` durably; ``options`` are those of the engine's ``save``."""
    if is_native(backend):
        return save(store, dict(parts), **options)
    return deposit_plain(backend, store, as_plain(parts), **options)


def deposit_plain(backend: Any, store: Store, data: Mapping[str, Any], **options: Any) -> CheckpointInfo:
    """Let a backend write plain data where nobody sees it, and commit what it wrote."""
    write = saver_of(backend)
    return save_opaque(
        store,
        lambda path: write(dict(data), path),
        backend=name_of(backend),
        file=f"checkpoint{extension_of(backend)}",
        **options,
    )


def withdraw(
    store: Store, name: str, *, own: Any, parts: Sequence[str] | None = None, device: Any = None, full: bool = True
) -> dict[str, Any]:
    """Give the parts of the checkpoint ``name`` back, checked before anything is built from them.

    ``own`` is the backend to use for what it wrote itself; others are found by the name in the manifest.
    """
    written = written_by(store, name)
    if written is None:
        return dict(load(store, name=name, parts=parts, device=device, verify="full" if full else "fast"))
    backend = own if name_of(own) == written.backend else find_backend(written.backend)
    read = loader_of(backend)
    found = load_opaque(store, name, lambda path: read(path, device), full=full)
    if not isinstance(found, Mapping):
        raise BackendInvalid(
            f"{store.url}/{name}: the storage backend {name_of(backend)} gave back a {type(found).__name__}, expected "
            "the mapping of parts it was given to save."
        )
    state: dict[str, Any] = {str(_NAMES.get(key, key)): value for key, value in found.items()}
    return state if parts is None else {key: value for key, value in state.items() if key in parts}


def as_plain(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Parts as plain data, under the keys that people know from ``.pt`` files.

    Example:
        >>> as_plain({"model": {"w": 1.0}, "ema": 0.9})
        {'model_state_dict': {'w': 1.0}, 'ema': 0.9}
    """
    return {_KEYS.get(name, name): _plain(part) for name, part in parts.items()}


def _plain(part: Any) -> Any:
    if isinstance(part, RngState):  # the safe loader of torch refuses NumPy arrays
        return part.plain_state_dict()
    return state_of(part) if object_kind(type(part)) is not None else part
