"""Verify: read a checkpoint back from the medium and name every damage."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, replace

from model_checkpoint.engine.common.info import CheckpointInfo, path_of
from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.option_checks import require
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader, read_plain, tensors_of_chunk
from model_checkpoint.engine.reading.chunks.healthy_copies import Copy, HealthyCopies
from model_checkpoint.engine.reading.chunks.parity_files import ParityFiles
from model_checkpoint.engine.root.listing import (
    ListedCheckpoint,
    read_any_manifest,
    read_listed,
    require_root,
    scan,
    to_info,
)
from model_checkpoint.engine.root.refs import Reference, choose, resolve
from model_checkpoint.errors import CheckpointException, CorruptedCheckpoint, IncompatibleVersion, WrongReference
from model_checkpoint.events import Emit, ignore
from model_checkpoint.format import check_entries, check_files
from model_checkpoint.manifest import FileRecord, Manifest
from model_checkpoint.notebook_html import html_table
from model_checkpoint.options import ReaderLimits
from model_checkpoint.plan import ChunkRead, rank_by_age
from model_checkpoint.storage.contract.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One thing wrong with a checkpoint, with its address."""

    problem: str
    file: str = ""
    chunk: int | None = None
    tensors: Sequence[str] = ()
    unread: bool = False  # it could not be read here and now, which does not prove that it is damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What verification found in one checkpoint."""

    info: CheckpointInfo
    damage: Sequence[Damage]
    bytes_read: int
    parity: Sequence[Damage] = ()  # what is wrong with its parity files, which the state itself does not need

    @property
    def ok(self) -> bool:
        """Whether every byte is as it was saved."""
        return not self.damage

    def _repr_html_(self) -> str:
        """How a notebook shows it: the verdict, and the address of each damage."""
        rows = [(one.file, "" if one.chunk is None else one.chunk, one.problem) for one in (*self.damage, *self.parity)]
        verdict = "healthy" if self.ok else f"{len(self.damage)} damaged"
        title = f"{self.info.path}: {verdict}, {self.bytes_read:,} bytes read"
        return html_table(title, ["file", "chunk", "problem"], rows)


def verify(
    root: Reference,
    *,
    step: int | None = None,
    id: str | None = None,  # the name users know
    best: str | None = None,
    name: str | None = None,
    progress: Listen = None,
) -> list[Health]:
    """Read checkpoints back and compare every byte with its SHA-256; all of a root, or the one chosen or referred to.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-verify", {"a": b"bytes"}, step=1)
        >>> [health.ok for health in mc.verify("memory://doc-verify")]
        [True]
    """
    require(progress=progress)
    store, choice = resolve(root, step=step, id=id, best=best, name=name)
    everything = all(value is None for value in choice.values())
    if everything:
        require_root(store)
        chosen: Sequence[ListedCheckpoint] = rank_by_age(scan(store))
    else:
        chosen = choose(store, **choice)[1][:1]
    with listening(progress, "verifying") as emit:
        meter = Meter("verify", bytes_in(chosen), emit)
        copies = HealthyCopies() if everything else None
        healths = [health for found in chosen if (health := _examine_present(store, found, meter, copies)) is not None]
    if chosen and not healths and not everything:
        raise _deleted_meanwhile(store, chosen[0].name)
    return healths


def verify_named(store: Store, name: str, copies: HealthyCopies) -> Health:
    """Read one checkpoint of many back; of what it shares with those before it no byte is read twice.

    Raises:
        WrongReference: there is none of that name (any more).
    """
    found = choose(store, name=name)[1][0]
    health = _examine_present(store, found, Meter("verify", bytes_in([found]), ignore), copies)
    if health is None:
        raise _deleted_meanwhile(store, name)
    return health


def _deleted_meanwhile(store: Store, name: str) -> WrongReference:
    where = path_of(store, name)
    return WrongReference(f"{where}: was deleted while it was being verified. See `mckpt trash`.", where)


def damage_of(store: Store, name: str) -> Sequence[Damage]:
    """What verification finds in one checkpoint; nothing if it is healthy or gone."""
    found = read_listed(store, name)
    health = None if found is None else _examine_present(store, found, Meter("verify", 0, ignore))
    return () if health is None else health.damage


def bytes_in(chosen: Sequence[ListedCheckpoint]) -> int:
    """Bytes there are to verify in some checkpoints."""
    return sum(copy.raw_size for f in chosen if f.summary for copy in f.summary.copies)


def _examine_present(
    store: Store, found: ListedCheckpoint, meter: Meter, copies: HealthyCopies | None = None
) -> Health | None:
    """Examine one checkpoint, once more if it was replaced meanwhile; None if it was deleted, which is no damage."""
    while True:
        health = _examine(store, found, meter, copies)
        if health.ok:
            return health
        now = read_listed(store, found.name)
        if now is None:
            return None
        if now.summary is None or (found.summary is not None and now.summary.id == found.summary.id):
            return health
        found = now


def _examine(store: Store, found: ListedCheckpoint, meter: Meter, copies: HealthyCopies | None) -> Health:
    before, info = meter.done, to_info(store, found)
    spared = 0 if copies is None else copies.spared
    if found.error is not None:
        return Health(info=info, damage=[_damage(found.error)], bytes_read=0)
    try:
        manifest = read_any_manifest(store, found.name)
        check_files((*manifest.files, *manifest.extras), info.path, ReaderLimits())
        check_entries(manifest.stored, manifest.files, info.path, ReaderLimits())
    except CheckpointException as error:
        return Health(info=info, damage=[_damage(error)], bytes_read=0)
    damage = _examine_files(store, manifest, meter, copies)
    parity = _examine_parity(store, manifest)
    read = meter.done - before - (0 if copies is None else copies.spared - spared)
    return Health(info=info, damage=damage, bytes_read=read, parity=parity)


def examine_content(store: Store, manifest: Manifest, meter: Meter) -> tuple[list[Damage], list[Damage]]:
    """What is wrong with the files of a checkpoint, and with its parity files, by a manifest that is at hand."""
    return _examine_files(store, manifest, meter), _examine_parity(store, manifest)


def _examine_files(store: Store, manifest: Manifest, meter: Meter, copies: HealthyCopies | None = None) -> list[Damage]:
    damage: list[Damage] = []
    whole: dict[str, Copy] = {}
    shared = {} if copies is None else copies.shared_by(store, manifest)
    with ChunkReader(store, manifest, full=True) as medium:
        for index, record in enumerate(manifest.files):
            copy = shared.get(record.name)
            if copies is not None and copies.knows(copy):
                damage.extend(_open(medium, manifest, index) or _examine_header(medium, manifest, index, meter))
                meter.add(copies.spare(record))
                continue
            found = _examine_file(medium, manifest, index, meter)
            damage.extend(found)
            if copy is not None and not found:
                whole[record.name] = copy
    if copies is not None:
        copies.learn(store, manifest, whole)
    damage.extend(d for record in manifest.extras for d in _examine_extra(store, manifest, record, meter))
    return damage


def examine_file(store: Store, manifest: Manifest, file: str, *, emit: Emit = ignore) -> list[Damage]:
    """What verification finds in one file of a checkpoint."""
    names = [record.name for record in manifest.files]
    meter = Meter("verify", 0, emit)
    if file not in names:
        extras = [record for record in manifest.extras if record.name == file]
        return [damage for record in extras for damage in _examine_extra(store, manifest, record, meter)]
    with ChunkReader(store, manifest, full=True) as medium:
        return _examine_file(medium, manifest, names.index(file), meter)


def _examine_parity(store: Store, manifest: Manifest) -> list[Damage]:
    """Check parity files, where they were asked for, to their end; one that is not there yet is told as missing."""
    if not manifest.parity_files:
        return []
    with ParityFiles(store, manifest.name, manifest.parity_files, path_of(store, manifest.name)) as parity:
        damage = [
            Damage(problem=str(error), file=file, unread=_is_unread(error)) for file, error in parity.problems.items()
        ]
        for file, block, error in parity.broken_blocks():
            damage.append(Damage(problem=str(error), file=file, chunk=block))
    return damage


def _open(medium: ChunkReader, manifest: Manifest, index: int) -> list[Damage]:
    """Open one data file and compare its size; what keeps us from that."""
    try:
        medium.open(index)
    except CheckpointException as error:
        names = [entry.name for entry in manifest.entries if entry.file == index]
        return [Damage(problem=str(error), file=manifest.files[index].name, tensors=names, unread=_is_unread(error))]
    return []


def _examine_header(medium: ChunkReader, manifest: Manifest, index: int, meter: Meter) -> list[Damage]:
    record = manifest.files[index]
    meter.add(record.ends[0])
    try:
        medium.check_header(index)
    except CheckpointException as error:
        return [replace(_damage(error), file=record.name)]
    return []


def _examine_file(medium: ChunkReader, manifest: Manifest, index: int, meter: Meter) -> list[Damage]:
    """Check one data file to its end, so that all its damage is told at once."""
    unopened = _open(medium, manifest, index)
    if unopened:
        return unopened
    record, damage = manifest.files[index], _examine_header(medium, manifest, index, meter)
    found: dict[int, Damage] = {}

    def note(read: ChunkRead, error: Exception) -> None:
        names = tensors_of_chunk(manifest.entries, index, read.start, read.stop)
        unread = _is_unread(error)
        found[read.chunk] = Damage(problem=str(error), file=record.name, chunk=read.chunk, tensors=names, unread=unread)
        meter.add(read.stop - read.start)

    bounds = enumerate(zip(record.ends, record.ends[1:], strict=False), start=1)
    reads = [ChunkRead(index, chunk, start, stop, []) for chunk, (start, stop) in bounds]
    medium.read_chunks(reads, lambda _: None, lambda read, _: meter.add(read.stop - read.start), blame=note)
    return [*damage, *(found[chunk] for chunk in sorted(found))]


def _examine_extra(store: Store, manifest: Manifest, record: FileRecord, meter: Meter) -> list[Damage]:
    """Check a file that holds no tensors of ours, chunk by chunk."""
    damage: list[Damage] = []
    try:
        for chunk in read_plain(store, manifest, record, full=True):
            if not chunk.healthy:
                problem = f"{record.name}: chunk {chunk.number} does not have the recorded digest"
                damage.append(Damage(problem=problem, file=record.name, chunk=chunk.number))
            meter.add(len(chunk.data))
    except CheckpointException as error:
        damage.append(replace(_damage(error), file=record.name))
    return damage


def _damage(error: CheckpointException) -> Damage:
    if isinstance(error, CorruptedCheckpoint):
        tensors = (error.tensor,) if error.tensor else ()
        return Damage(problem=str(error), file=error.file, chunk=error.chunk, tensors=tensors)
    return Damage(problem=str(error), unread=_is_unread(error))


def _is_unread(error: Exception) -> bool:
    """Whether an error speaks of this reader or the way to the medium: a newer format, no permission, no answer."""
    return isinstance(error, (IncompatibleVersion, OSError)) and getattr(error, "errno", None) != errno.EIO
