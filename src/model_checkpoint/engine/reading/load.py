"""Load: a checkpoint becomes a training state again, or fills live objects; no byte is used unverified."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from model_checkpoint import tree
from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.common.option_checks import require, require_selection
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.ranks.conversation import Changing, unguarded
from model_checkpoint.engine.ranks.layout_inference import misfits, read_as
from model_checkpoint.engine.ranks.single_process import needs_coordinator
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader
from model_checkpoint.engine.reading.deliver import deliver
from model_checkpoint.engine.reading.first_healthy import first_healthy
from model_checkpoint.engine.reading.gather_boxes import local_boxes, wanted_boxes
from model_checkpoint.engine.reading.leaf_selection import LeafSelection, Parts, Rename, choose_leaves, fit_into
from model_checkpoint.engine.reading.load_ranks import LoadBarrier, PerRank, load_on_ranks, rank_view
from model_checkpoint.engine.root.listing import ListedCheckpoint, load_manifest
from model_checkpoint.engine.root.rank_manifests import join_ranks
from model_checkpoint.engine.root.refs import Reference, choose
from model_checkpoint.errors import (
    CheckpointNotFound,
    CheckpointWarning,
    MemoryRefused,
    OptionInvalid,
    PartlyLoaded,
    Truncated,
    WrongReference,
)
from model_checkpoint.format import check_entries, check_files
from model_checkpoint.manifest import Manifest
from model_checkpoint.options import MIB, ReaderLimits, Verify
from model_checkpoint.performance.available_memory import available_bytes
from model_checkpoint.performance.gc_pause import collector_paused
from model_checkpoint.plan import LoadReport
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.tree.nodes.per_rank import RankView

log = logging.getLogger("model_checkpoint.load")

_LIMITS = ReaderLimits()
_HARMLESS = MIB
_QUICK = 1 << 30  # bytes that are read so soon that the cycle collector can wait for all that a load makes to go again


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """How the caller wants the state."""

    into: Any
    parts: Parts
    types: Sequence[type]
    framework: str | None
    device: Any
    mmap: bool
    verify: Verify
    strict: bool
    rename: Rename
    atomic: bool
    cast: bool
    progress: Listen
    view: RankView
    whole: bool = False  # whether stored pieces are read as a whole where only a part is wanted
    barrier: LoadBarrier | None = None  # how this rank and the others go on together, if there are others

    @property
    def common(self) -> dict[str, Any]:
        """What every rank must ask for alike; device, classes, live objects and whose values it takes are its own."""
        renamed = sorted(self.rename.items()) if isinstance(self.rename, Mapping) else self.rename and "a function"
        return {
            "parts": self.parts if self.parts is None or isinstance(self.parts, str) else sorted({*self.parts}),
            "framework": self.framework,
            "mmap": self.mmap,
            "verify": self.verify.value,
            "strict": self.strict,
            "rename": [list(pair) for pair in renamed] if isinstance(renamed, list) else renamed,
            "atomic": self.atomic,
            "cast": self.cast,
            "reshard": "simple" if self.whole else "parallel",
        }


def load(
    root: Reference,
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
    cast: bool = False,
    progress: Listen = None,
    report: Callable[[LoadReport], object] | None = None,
    coordinator: Coordinator | None = None,
    per_rank: PerRank = None,
    reshard: str = "parallel",
) -> Any:
    """Load the newest checkpoint of ``root``, or the one chosen by ``step``, ``id``, ``best`` or ``name``.

    Args:
        root: The folder or URL given to :func:`save`, or a reference to one checkpoint: ``"runs/a@100"``,
            ``"runs/a@best:val_loss"``, its folder, a :class:`CheckpointInfo`.
        step: A training step.
        id: A checkpoint id, or the beginning of one.
        best: A metric (``"val_loss"``, ``"min:x"``, ``"max:x"``).
        name: A folder name.
        into: Live objects to fill in place; checked as a whole before the first byte of them changes.
        parts: Only these parts: names, prefixes or globs such as ``"model"`` or ``"optimizer.state.*"``. Of one name,
            ``into`` may be that part itself: ``load(root, parts="model", into=model)``.
        types: Classes (dataclasses, enums, namedtuples) the tree may build; loading never imports anything.
        framework: Give arrays as ``"numpy"``, ``"torch"``, ``"jax"`` or ``"tensorflow"`` instead of as saved.
        device: Where torch or JAX arrays shall live.
        mmap: Map aligned arrays instead of copying them (private: writes never reach the file).
        verify: ``"fast"`` (xxh3 of every chunk touched), ``"full"`` (SHA-256 too), ``"off"`` (only with ``mmap``).
        strict: Whether missing and unexpected leaves are errors, arrays and plain values alike; if not, a
            :class:`CheckpointWarning` tells them. Differences in shape are errors always, in dtype without ``cast``;
            a load that fills nothing always is one.
        rename: Saved prefix -> wanted prefix, or a function of the saved name.
        fallback: Go on to the next older healthy checkpoint, with a :class:`CheckpointWarning`.
        atomic: Change the live objects all at once or not at all (needs room for a copy).
        cast: Let live arrays keep their dtype where another was saved; the report and the log tell which did.
        progress: Called with a :class:`~model_checkpoint.events.Progress` as bytes are verified; True shows a bar.
        report: Called once with a :class:`LoadReport` when the load is done: which checkpoint it was, what was left
            out of it and which were passed over.
        coordinator: The ranks that load together (see :mod:`model_checkpoint.distributed`); every rank makes this
            call, and either all of them load the same checkpoint or all raise. Needed for arrays on many ranks.
        per_rank: Whose values to take where the ranks that saved had values of their own and now there are more or
            fewer: a rank of the save, or a function from a rank of now to one of the save.
        reshard: How to read arrays that are wanted in other parts than they were saved in: ``"parallel"``, each rank
            only the ranges it needs, or ``"simple"``, each stored piece as a whole, every rank beginning with another
            one: more bytes in fewer, longer reads.

    Raises:
        CheckpointNotFound: there is no root, or nothing in it: the first start. Also a ``FileNotFoundError``.
        WrongReference: what was asked for by step, name, id or metric is not there.
        StructureMismatch: checkpoint and live objects differ; nothing was changed.
        CorruptedCheckpoint: what is stored is not what was saved; the message says where.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-load", {"epoch": 3, "names": ("a", "b")}, step=1)
        >>> mc.load("memory://doc-load@1")
        {'epoch': 3, 'names': ('a', 'b')}
    """

    def checked() -> LoadRequest:
        require(mmap=mmap, verify=verify, strict=strict, fallback=fallback, atomic=atomic, cast=cast, progress=progress)
        require(reshard=reshard)
        require_selection(parts=parts, rename=rename, types=types)
        return LoadRequest(
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
            cast=cast,
            progress=progress,
            view=rank_view(coordinator, per_rank, parts),
            whole=reshard == "simple",
        )

    choice = {"step": step, "id": id, "best": best, "name": name}
    if coordinator is not None:

        def load_one(
            store: Store, found: ListedCheckpoint, request: Any, barrier: LoadBarrier
        ) -> tuple[Any, LoadReport]:
            return _load_named(store, found, replace(request, barrier=barrier))

        state, told = load_on_ranks(root, choice, checked, coordinator=coordinator, fallback=fallback, load=load_one)
    else:
        request = checked()
        store, choices = choose(root, **choice)
        if fallback:
            (state, told), passed = first_healthy(store, choices, lambda found: _load_named(store, found, request))
            told = replace(told, passed_over=tuple(passed))
        else:
            state, told = _load_named(store, choices[0], request)
    if not told.complete:
        log.warning("%s", told.tell())
        warnings.warn(CheckpointWarning(told.tell(), told), stacklevel=2)
    if report is not None:
        report(told)
    return state


def _verify_mode(text: str, *, mmap: bool) -> Verify:
    mode = Verify(text)
    if mode is Verify.OFF and not mmap:
        raise OptionInvalid('verify="off" exists only with mmap=True; every other load checks what it reads')
    return mode


def _load_named(store: Store, found: ListedCheckpoint, request: LoadRequest) -> tuple[Any, LoadReport]:
    """Load one checkpoint; when it is overwritten under our feet, its new manifest is read once more."""
    if found.error is not None:
        raise found.error
    started, where = time.monotonic(), path_of(store, found.name)
    log.info("%s: loading", where)
    manifest = _manifest_of(store, found.name, request)
    try:
        state, told, nbytes = _load_manifest(store, manifest, request)
    except (Truncated, PartlyLoaded):
        again = _manifest_of(store, found.name, request)
        if again.attempt == manifest.attempt or request.barrier is not None:  # many ranks begin again together, or not
            raise
        log.warning("%s: was overwritten during the load, reading the new one", where)
        state, told, nbytes = _load_manifest(store, again, request)
    log.info("%s: loaded %d bytes in %.3f s", where, nbytes, time.monotonic() - started)
    return state, told


def _manifest_of(store: Store, name: str, request: LoadRequest) -> Manifest:
    try:
        return load_manifest(store, name, request.view, join=False)
    except CheckpointNotFound:  # which would say that this is the first start
        where = path_of(store, name)
        raise WrongReference(
            f"{where}: was deleted during the load. Load again, or pass fallback=True.", where
        ) from None


def _load_manifest(store: Store, manifest: Manifest, request: LoadRequest) -> tuple[Any, LoadReport, int]:
    quick = sum(entry.nbytes for entry in manifest.entries) < _QUICK
    with collector_paused() if quick else nullcontext():
        return _load_checked(store, manifest, request)


def _load_checked(store: Store, manifest: Manifest, request: LoadRequest) -> tuple[Any, LoadReport, int]:
    where = path_of(store, manifest.name)
    with collector_paused():
        chosen = choose_leaves(manifest, where, parts=request.parts, rename=request.rename)
    changing = unguarded if request.barrier is None else request.barrier.changing
    with tree.Preparation() as preparing:
        with collector_paused():
            fit = chosen if request.into is None else _fit(chosen, manifest, request, preparing)
            restore = _prepared(manifest, fit, request, where)
            if manifest.ranks:
                wanted = wanted_boxes(manifest, restore.needed, restore.layouts(), request.view.program_rank)
                manifest = join_ranks(store, manifest, wanted)
        nbytes = _filled(store, manifest, restore, request, changing)
        for name, saved, live in restore.casts:
            log.info("%s: %s is cast from %s to %s", where, name, saved, live)
        with changing(lambda: (_replaced(manifest, restore, request), [])):
            return restore.finish(), replace(fit.report, casts=restore.casts), nbytes


def _replaced(manifest: Manifest, restore: tree.Restore, request: LoadRequest) -> list[str]:
    """What a load has replaced at its end: live arrays, or where there are none, all that it was to fill."""
    if request.into is None:
        return []
    names = [manifest.entries[index].name for index in restore.needed]
    return names or ([str(key) for key in request.into] if isinstance(request.into, Mapping) else ["the state"])


def _filled(store: Store, manifest: Manifest, restore: tree.Restore, request: LoadRequest, changing: Changing) -> int:
    """Bring all bytes to where they are wanted, with the files open no longer than that; return how many."""
    where = path_of(store, manifest.name)
    with ChunkReader(store, manifest, full=request.verify is Verify.FULL) as medium:
        open_files = medium.prepare if manifest.ranks else medium.open_checked  # what one process wrote was checked
        with collector_paused():
            open_files(manifest.stored_of(restore.needed))  # all that can be checked without data: sizes, headers
        if not request.mmap:
            _require_memory(restore, where)
        nested = _agree(restore, manifest, request, medium)
        boxes = local_boxes(request.view.program_rank, lambda shape, layout: read_as(shape, layout, nested))
        begin = None if request.barrier is None else request.view.rank / request.view.world_size
        check = request.verify is not Verify.OFF
        with listening(request.progress, "loading") as emit:
            hear = emit if request.barrier is None else request.barrier.both(emit)
            source = medium if request.barrier is None else request.barrier.shared(medium, manifest)

            def bring() -> int:
                return deliver(
                    medium,
                    manifest,
                    restore,
                    restore.needed,
                    mapped=request.mmap,
                    check=check,
                    emit=hear,
                    boxes=boxes,
                    begin=begin,
                    whole_pieces=request.whole,
                    source=source,
                    changing=changing,
                )

            return bring() if request.barrier is None else request.barrier.attended(bring)


def _agree(restore: tree.Restore, manifest: Manifest, request: LoadRequest, medium: ChunkReader) -> Sequence[str]:
    """Go on only if every rank can; return which layouts are read as FSDP2 cuts."""
    laid = restore.laid_out()
    if request.barrier is not None:
        return request.barrier.ready(
            manifest.attempt,
            misfits(laid, request.view.program_rank),
            sum(manifest.entries[index].nbytes for index in restore.needed) if medium.reads_far else 0,
        )
    if laid:
        raise needs_coordinator(restore.shard_names(), medium.where, "load into")
    return ()


def _fit(chosen: LeafSelection, manifest: Manifest, request: LoadRequest, preparing: tree.Preparation) -> LeafSelection:
    return fit_into(
        chosen,
        manifest.entries,
        request.into,
        parts=request.parts,
        rename=request.rename,
        strict=request.strict,
        preparing=preparing,
        cast=request.cast,
    )


def _prepared(manifest: Manifest, fit: LeafSelection, request: LoadRequest, where: str) -> tree.Restore:
    """Check whether all is there that the tree needs: places in files, classes, frameworks, live objects."""
    used = list(tree.entries_in(fit.tree, manifest.entries))
    if not manifest.ranks:  # else what is in the files is known only when the manifests of the ranks have joined it
        check_files(manifest.files, where, _LIMITS)
        check_entries(manifest.stored_of(used), manifest.files, where, _LIMITS)
    return tree.prepare(
        fit.tree,
        manifest.entries,
        into=request.into if fit.live is None else fit.live,
        types=request.types,
        framework=request.framework,
        device=request.device,
        atomic=request.atomic,
        cast=request.cast,
    )


def _require_memory(restore: tree.Restore, where: str) -> None:
    """Refuse a load that would get this process killed."""
    fresh = restore.fresh_bytes()
    room = available_bytes() if fresh > _HARMLESS else None  # to ask takes longer than to load so little
    if room is not None and fresh > room:
        raise MemoryRefused(
            f"{where}: the load needs {fresh} bytes of memory, {room} are available. Load parts=[...], load into= live "
            "objects, or pass mmap=True.",
            where,
        )
