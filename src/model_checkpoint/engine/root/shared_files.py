"""Shared files: checkpoints that hold the same copy of a file. N of them are one copy, and are damaged together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from model_checkpoint.errors import CheckpointNotFound
from model_checkpoint.manifest import Head, Summary
from model_checkpoint.storage.contract.store import FileStat, Store
from model_checkpoint.storage.locate import Root, open_store


class SharedFiles(msgspec.Struct, frozen=True):
    """What one checkpoint has in common with others."""

    nbytes: int = 0
    names: tuple[str, ...] = ()  # the others


def shares(store: Store, summaries: Mapping[str, Head | Summary]) -> dict[str, SharedFiles]:
    """For each checkpoint that has files in common with others, how many bytes and with which.

    Manifests say which may share; the medium says which do, since copying a root elsewhere parts them.
    """
    recorded: dict[str, set[str]] = defaultdict(set)
    for name, summary in summaries.items():
        for copy in summary.copies:
            recorded[copy.identity].add(name)
    suspects = {name for identity, names in recorded.items() if identity and len(names) > 1 for name in names}
    stamps = {name: _stamps(store, name) for name in suspects}
    holders: dict[str, set[str]] = defaultdict(set)
    for name, files in stamps.items():
        for stamp in files.values():
            holders[stamp.identity].add(name)
    return {name: _share(name, files.values(), holders) for name, files in stamps.items()}


def share_of(store: Store, name: str) -> SharedFiles:
    """What one checkpoint has in common with others, asking only as many as it takes, latest first."""
    mine = _stamps(store, name)
    wanted = {stamp.identity: stamp.links for stamp in mine.values() if stamp.links > 1}
    holders: dict[str, set[str]] = {identity: {name} for identity in wanted}
    for other in sorted(store.entries(), reverse=True) if wanted else ():
        if all(len(holders[identity]) >= links for identity, links in wanted.items()):
            break
        for identity in {stamp.identity for stamp in _stamps(store, other).values()} & wanted.keys():
            holders[identity].add(other)
    return _share(name, [stamp for stamp in mine.values() if stamp.identity in wanted], holders)


def _share(name: str, stamps: Iterable[FileStat], holders: Mapping[str, set[str]]) -> SharedFiles:
    common = [stamp for stamp in stamps if len(holders[stamp.identity]) > 1]
    others = {other for stamp in common for other in holders[stamp.identity]} - {name}
    return SharedFiles(sum(stamp.size for stamp in common), tuple(sorted(others)))


def identities(store: Store, name: str) -> set[str]:
    """Which copies on the medium a checkpoint is made of."""
    return {stamp.identity for stamp in _stamps(store, name).values()}


def identity_of(store: Store, name: str, file: str) -> str:
    """Which copy on the medium one file is; empty if it is gone."""
    stamp = _stamps(store, name).get(file)
    return stamp.identity if stamp is not None else ""


def _stamps(store: Store, name: str) -> dict[str, FileStat]:
    try:
        return store.stamps(name)
    except CheckpointNotFound:
        return {}  # deleted meanwhile


def stored_bytes(root: Root) -> int:
    """Bytes that all checkpoints of ``root`` take together, each copy counted once.

    Example:
        >>> import model_checkpoint as mc
        >>> info = mc.save("memory://doc-stored", {"a": b"bytes"}, step=1)
        >>> stored_bytes("memory://doc-stored") > info.size_bytes
        True
    """
    store = open_store(root)
    stamps = [stamp for name in store.names() for stamp in _stamps(store, name).values()]
    return sum({stamp.identity: stamp.size for stamp in stamps}.values())
