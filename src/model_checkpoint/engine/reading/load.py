"""Load: a checkpoint becomes a training state again, or fills live objects; no byte is used unverified."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model_checkpoint import plan, tree
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.common.option_checks import require, require_selection
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.reading.chunk_reader import ChunkReader
from model_checkpoint.engine.reading.deliver import deliver
from model_checkpoint.engine.root.listing import ListedCheckpoint, candidates, load_manifest
from model_checkpoint.engine.root.shared_files import identities, identity_of
from model_checkpoint.errors import (
    CheckpointException,
    CheckpointNotFound,
    CorruptedCheckpoint,
    IncompatibleVersion,
    MemoryRefused,
    OptionInvalid,
    PartlyLoaded,
    StorageFailure,
    StructureMismatch,
    Truncated,
)
from model_checkpoint.manifest import Manifest, Node
from model_checkpoint.options import Verify
from model_checkpoint.performance.available_memory import available_bytes
from model_checkpoint.state import LiveSpecs
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.locate import Root, open_store
from model_checkpoint.tree.nodes.gc_pause import collector_paused
from model_checkpoint.tree.nodes.walk import leaves

log = logging.getLogger("model_checkpoint.load")

_PASSED_OVER = (CorruptedCheckpoint, IncompatibleVersion, StorageFailure, PartlyLoaded)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoadRequest:
    """How the caller wants the state."""

    into: Any
    parts: str | Sequence[str] | None
    types: Sequence[type]
    framework: str | None
    device: Any
    mmap: bool
    verify: Verify
    strict: bool
    rename: Mapping[str, str] | Callable[[str], str] | None
    atomic: bool
    progress: Listen


def load(
    root: Root,
    *,
    step: int | None = None,
    id: str | None = None,  # the name users know
    best: str | None = None,
    name: str | None = None,
    into: Any = None,
    parts: str | Sequence[str] | None = None,
    types: Sequence[type] = (),
    framework: str | None = None,
    device: Any = None,
    mmap: bool = False,
    verify: str = "fast",
    strict: bool = True,
    rename: Mapping[str, str] | Callable[[str], str] | None = None,
    fallback: bool = False,
    atomic: bool = False,
    progress: Listen = None,
) -> Any:
    """Load the newest checkpoint of ``root``, or the one chosen by ``step``, ``id``, ``best`` or ``name``.

    Args:
        root: The folder or URL given to :func:`save`.
        step: A training step.
        id: A checkpoint id, or the beginning of one.
        best: A metric (``"val_loss"``, ``"min:x"``, ``"max:x"``).
        name: A folder name.
        into: Live objects to fill in place; checked as a whole before the first byte of them changes.
        parts: Only these parts: names, prefixes or globs such as ``"model"`` or ``"optimizer.state.*"``.
        types: Classes (dataclasses, enums, namedtuples) the tree may build; loading never imports anything.
        framework: Give arrays as ``"numpy"``, ``"torch"``, ``"jax"`` or ``"tensorflow"`` instead of as saved.
        device: Where torch or JAX arrays shall live.
        mmap: Map aligned arrays instead of copying them (private: writes never reach the file).
        verify: ``"fast"`` (xxh3 of every chunk touched), ``"full"`` (SHA-256 too), ``"off"`` (only with ``mmap``).
        strict: Whether missing and unexpected leaves are errors; shape and dtype differences always are.
        rename: Saved prefix -> wanted prefix, or a function of the saved name.
        fallback: Go on to the next older healthy checkpoint, with a warning in the log.
        atomic: Change the live objects all at once or not at all (needs room for a copy).
        progress: Called with a :class:`~model_checkpoint.events.Progress` as bytes are verified; True shows a bar.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-load", {"epoch": 3, "names": ("a", "b")}, step=1)
        >>> mc.load("memory://doc-load")
        {'epoch': 3, 'names': ('a', 'b')}
    """
    require(mmap=mmap, verify=verify, strict=strict, fallback=fallback, atomic=atomic, progress=progress)
    require_selection(parts=parts, rename=rename, types=types)
    wish = _LoadRequest(
        into=into,
        parts=parts,
        types=types,
        framework=framework,
        device=device,
        mmap=mmap,
        verify=_verify_mode(verify, mmap=mmap),
        strict=strict,
        rename=rename,
        atomic=atomic,
        progress=progress,
    )
    store = open_store(root)
    choices = candidates(store, step=step, id=id, best=best, name=name)
    if not fallback:
        return _load_named(store, choices[0], wish)
    return _load_first_healthy(store, choices, wish)


def _verify_mode(text: str, *, mmap: bool) -> Verify:
    mode = Verify(text)
    if mode is Verify.OFF and not mmap:
        raise OptionInvalid('verify="off" exists only with mmap=True; every other load checks what it reads')
    return mode


def _load_first_healthy(store: Store, choices: Sequence[ListedCheckpoint], wish: _LoadRequest) -> Any:
    """Try the choices in order, but none that shares a damaged copy; say at each where the load goes on."""
    damaged: set[str] = set()
    failures: list[CheckpointException] = []
    for place, found in enumerate(choices, start=1):
        where = path_of(store, found.name)
        if damaged and damaged & identities(store, found.name):
            log.warning("%s: passed over, it holds the very copy of a file that was found damaged", where)
            continue
        try:
            return _load_named(store, found, wish)
        except _PASSED_OVER as error:
            if isinstance(error, PartlyLoaded) and not isinstance(error.inner_exception, _PASSED_OVER):
                raise  # an object of the caller's refused a healthy state
            failures.append(error)
            damaged |= _damaged_copy(store, found.name, error)
            for older in choices[place : place + 1]:
                log.warning("%s: not usable, falling back to %s: %s", where, older.name, error)
    raise failures[-1]


def _damaged_copy(store: Store, name: str, error: CheckpointException) -> set[str]:
    """Which copy on the medium an error speaks of, if it speaks of one."""
    cause = error.inner_exception if isinstance(error, PartlyLoaded) else error
    file = cause.file if isinstance(cause, CorruptedCheckpoint) else ""
    return {identity_of(store, name, file)} - {""} if file else set()


def _load_named(store: Store, found: ListedCheckpoint, wish: _LoadRequest) -> Any:
    """Load one checkpoint; when it is overwritten under our feet, its new manifest is read once more."""
    if found.error is not None:
        raise found.error
    started, where = time.monotonic(), path_of(store, found.name)
    log.info("%s: loading", where)
    manifest = load_manifest(store, found.name)
    try:
        state, nbytes = _load_manifest(store, manifest, wish)
    except (Truncated, PartlyLoaded):
        try:
            again = load_manifest(store, found.name)
        except CheckpointNotFound:
            again = manifest  # deleted during the load, which the first error says
        if again.attempt == manifest.attempt:
            raise
        log.warning("%s: was overwritten during the load, reading the new one", where)
        state, nbytes = _load_manifest(store, again, wish)
    log.info("%s: loaded %d bytes in %.3f s", where, nbytes, time.monotonic() - started)
    return state


def _load_manifest(store: Store, manifest: Manifest, wish: _LoadRequest) -> tuple[Any, int]:
    where = path_of(store, manifest.name)
    with ChunkReader(store, manifest, full=wish.verify is Verify.FULL) as medium:
        with collector_paused():
            restore = _prepared(medium, manifest, where, wish)
        needed = list(restore.needed)
        if not wish.mmap:
            _require_memory(manifest, restore, needed, where)
        check = wish.verify is not Verify.OFF
        with listening(wish.progress, "loading") as emit:
            nbytes = deliver(medium, manifest, restore, needed, mapped=wish.mmap, check=check, emit=emit)
        return restore.finish(), nbytes


def _prepared(medium: ChunkReader, manifest: Manifest, where: str, wish: _LoadRequest) -> tree.Restore:
    """Check all that can be checked without reading data: names, shapes, dtypes, classes, sizes, headers."""
    node = wanted_tree(manifest, where, parts=wish.parts, rename=wish.rename)
    if wish.into is not None:
        node = _fitted(node, manifest, where, wish)
    medium.prepare(manifest.entries[i] for i in tree.entries_in(node, manifest.entries))
    return tree.prepare(
        node,
        manifest.entries,
        into=wish.into,
        types=wish.types,
        framework=wish.framework,
        device=wish.device,
        atomic=wish.atomic,
    )


def wanted_tree(
    manifest: Manifest,
    where: str,
    *,
    parts: str | Sequence[str] | None,
    rename: Mapping[str, str] | Callable[[str], str] | None = None,
) -> Node:
    """The saved tree, reduced to ``parts`` and then renamed; a pattern that fits nothing is an error."""
    node = manifest.tree
    if parts is not None:
        node = tree.select(node, plan.matcher(parts))
        patterns = [parts] if isinstance(parts, str) else list(parts)
        names = [name for name, _ in leaves(manifest.tree)]
        idle = [p for p in patterns if not any(map(plan.matcher(p), names))]
        if idle:
            tops = sorted({name.split(".")[0] for name in names})
            raise StructureMismatch(
                f"{where}: parts {idle} name nothing in it; its parts are {', '.join(tops[:20])}. See `mckpt show`.",
                where,
            )
    new_name = plan.renamer(rename)
    if isinstance(rename, Mapping):
        idle = [old for old in rename if not any(map(plan.matcher(old), (name for name, _ in leaves(node))))]
        if idle:
            log.warning("%s: rename= has names that fit nothing in it: %s", where, ", ".join(idle))
    return node if new_name is None else tree.rename(node, new_name)


def _fitted(node: Node, manifest: Manifest, where: str, wish: _LoadRequest) -> Node:
    """Compare saved and live leaves before any byte is read; return the tree that will be restored."""
    wanted = plan.live_matcher(wish.parts, wish.rename)
    saved = tree.specs(node, manifest.entries)
    every = tree.live_specs(wish.into)
    known = {spec.name for spec in saved}
    live = LiveSpecs([s for s in every.specs if s.name in known or wanted(s.name)], every.open_prefixes)
    unmet = [name for name in tree.unmet(node, wish.into) if wanted(name)]
    report = plan.compare(saved, live, unmet=unmet, unasked=tree.unasked(node, wish.into))
    if report.clashes or (wish.strict and not report.fits):
        cure = "" if report.clashes else " Pass parts=[...] for some parts only, rename={...}, or strict=False."
        raise StructureMismatch(
            f"{where}: checkpoint and live objects differ; nothing was changed.{cure}\n{report.render()}",
            where,
            report=report,
        )
    if not report.fits:
        log.warning("%s: strict=False, leaving out:\n%s", where, report.render())
    dropped = set(report.unexpected)
    return tree.select(node, lambda name: name not in dropped) if dropped else node


def _require_memory(manifest: Manifest, restore: tree.Restore, needed: Sequence[int], where: str) -> None:
    """Refuse a load that would get this process killed."""
    fresh = sum(manifest.entries[i].nbytes for i in needed if not restore.is_live(i))
    room = available_bytes() if fresh else None
    if room is not None and fresh > room:
        raise MemoryRefused(
            f"{where}: the load needs {fresh} bytes of memory, {room} are available. Load parts=[...], load into= live "
            "objects, or pass mmap=True.",
            where,
        )
