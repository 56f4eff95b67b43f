"""Incremental: find the checkpoint to build on, learn what changed since, and repeat whole files that did not.

A repeated file is the same copy under another name, so it is repeated only while it is surely the one its manifest
speaks of, and neither too often nor for too long: all that share it share its damage.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import xxhash

from model_checkpoint import plan
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.workers import Pace, cores, run_all
from model_checkpoint.engine.root.listing import by_age
from model_checkpoint.engine.writing.request import SaveRequest
from model_checkpoint.errors import CheckpointException
from model_checkpoint.events import Emit, ignore
from model_checkpoint.format import check_entries, check_files, content_digest
from model_checkpoint.manifest import OPAQUE, Entry, FileRecord, Manifest, decode
from model_checkpoint.options import MIB, ReaderLimits, ReuseLimits
from model_checkpoint.plan.assign import assign
from model_checkpoint.state import Flat, Leaf
from model_checkpoint.storage.contract.store import Attempt, FileStat, Store

log = logging.getLogger("model_checkpoint.save")

_WINDOW = MIB


@dataclass(frozen=True, slots=True)
class Parent:
    """The checkpoint an incremental save builds on."""

    name: str  # of its folder
    manifest: Manifest
    entries: Mapping[int, Sequence[Entry]]  # by file, in the manifest's order


@dataclass(frozen=True, slots=True)
class LinkedFile:
    """A file of the parent that is also a file of the new checkpoint."""

    record: FileRecord
    entries: Sequence[Entry]  # of the parent; the file's plan has their order


def plan_files(
    store: Store, order: SaveRequest, flat: Flat, parent: Parent | None, *, emit: Emit = ignore
) -> list[plan.FilePlan]:
    """Decide which files of ``parent`` are repeated, and how the rest is cut."""
    if not order.incremental:
        return assign(flat.leaves, order.layout, order.limits)
    known = parent.manifest if parent is not None else None
    unchanged = _unchanged(order, flat, known, emit) if known is not None else {}
    usable = _usable(store, order, parent, ReuseLimits()) if parent is not None else set()
    return plan.reassign(flat.leaves, order.layout, order.limits, unchanged=unchanged, parent=known, usable=usable)


def find_parent(store: Store) -> Parent | None:
    """The newest committed checkpoint whose manifest can be used."""
    for found in by_age(store):
        if found.summary is not None and OPAQUE in found.summary.features:
            continue
        where = path_of(store, found.name)
        try:
            manifest = decode(store.read_manifest(found.name), where)
            check_files(manifest.files, where, ReaderLimits())
            check_entries(manifest.entries, manifest.files, where, ReaderLimits())
        except CheckpointException as error:
            log.warning("%s: cannot be built on: %s", where, error)
        else:
            return Parent(found.name, manifest, _by_file(manifest))
    return None


def _by_file(manifest: Manifest) -> dict[int, list[Entry]]:
    entries: dict[int, list[Entry]] = {}
    for entry in manifest.entries:
        entries.setdefault(entry.file, []).append(entry)
    return entries


def _unchanged(order: SaveRequest, flat: Flat, parent: Manifest, emit: Emit) -> dict[int, int]:
    """Leaves whose content is that of an entry of the parent."""
    pairs = plan.comparable(flat.leaves, order.layout, parent)
    digests = hash_contents({i: flat.leaves[i] for i in pairs}, order.limits.chunk_bytes, emit)
    return {leaf: entry for leaf, entry in pairs.items() if digests[leaf] == parent.entries[entry].digest}


def hash_contents(leaves: Mapping[int, Leaf], chunk_bytes: int, emit: Emit = ignore) -> dict[int, str]:
    """The content digests of ``leaves``, computed in a few threads; no byte is written."""
    cuts = [(i, start) for i, leaf in leaves.items() for start in range(0, max(1, leaf.nbytes), chunk_bytes)]
    found: dict[tuple[int, int], bytes] = {}
    meter = Meter("fingerprint", sum(leaf.nbytes for leaf in leaves.values()), emit)

    def worker(items: Iterator[tuple[int, int]]) -> None:
        for i, start in items:
            stop = min(leaves[i].nbytes, start + chunk_bytes)
            found[i, start] = _digest(leaves[i], start, stop)
            meter.add(stop - start)

    run_all(worker, cuts, pace=Pace(most=cores()))
    digests: dict[int, list[bytes]] = {}
    for i, start in cuts:
        digests.setdefault(i, []).append(found[i, start])
    return {i: _content(parts, whole=leaves[i].nbytes < chunk_bytes) for i, parts in digests.items()}


def _digest(leaf: Leaf, start: int, stop: int) -> bytes:
    """Hash a little at a time: arrays that do not lie in order in host memory are copied for it."""
    digest = xxhash.xxh3_128()
    for offset in range(start, stop, _WINDOW):
        digest.update(leaf.source.window(offset, min(stop, offset + _WINDOW)))
    return digest.digest()


def _content(parts: Sequence[bytes], *, whole: bool) -> str:
    """As a data file has it: the digest of the bytes, or of the digests of a tensor that has chunks of its own."""
    return parts[0].hex() if whole else content_digest(b"".join(parts))


def _usable(store: Store, order: SaveRequest, parent: Parent, limits: ReuseLimits) -> set[int]:
    """Files of the parent that may be linked once more."""
    if parent.manifest.compression != order.compression.value:
        return set()
    try:
        stamps = store.stamps(parent.name)
    except CheckpointException as error:
        log.warning("%s: cannot be built on: %s", path_of(store, parent.name), error)
        return set()
    now = time.time()
    return {
        i for i, record in enumerate(parent.manifest.files) if _is_fit(record, stamps.get(record.name), now, limits)
    }


def _is_fit(record: FileRecord, stamp: FileStat | None, now: float, limits: ReuseLimits) -> bool:
    """Whether a file is as recorded, not shared too often, and not too long unverified."""
    return (
        stamp is not None
        and (stamp.size, stamp.identity) == (record.size, record.identity)
        and stamp.links <= limits.links
        and abs(now - record.verified) < limits.seconds
    )


def link_file(stage: Attempt, file: plan.FilePlan, name: str, parent: Parent | None) -> LinkedFile | None:
    """Link the file of ``parent`` that ``file`` repeats; None if there is none, or it must be written after all."""
    if parent is None or file.repeats is None:
        return None
    record = parent.manifest.files[file.repeats]
    if not stage.link(name, source=parent.name, source_file=record.name, identity=record.identity):
        return None
    return LinkedFile(record, parent.entries[file.repeats])
