"""Repair: find what is damaged, rebuild it from what is left, and tell what is lost.

Damage is found as verification finds it. What comes back is bit-exact, by its SHA-256, in a new file that takes the
damaged one's place; the damaged one stays in the trash for its grace. May be killed at any moment and run again, and
any number of repairs may run at once: each step leaves every file either as it was or right.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from model_checkpoint.engine.common.info import CheckpointInfo, info_of, path_of
from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.option_checks import require
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.reading.verify import Damage, bytes_in, examine_content, examine_file
from model_checkpoint.engine.repairing.chunk_sources import ChunkSources, RepairTarget
from model_checkpoint.engine.repairing.lost_manifest import find_manifest, put_manifest
from model_checkpoint.engine.repairing.rebuild import LostChunk, RepairedFile, Superseded, rebuild, survey
from model_checkpoint.engine.root.listing import ListedCheckpoint, require_root, scan
from model_checkpoint.engine.root.rank_manifests import join_ranks, rank_files_only
from model_checkpoint.engine.root.refs import Reference, choose, parse_ref, resolve
from model_checkpoint.errors import CheckpointException, CheckpointNotFound, CorruptedCheckpoint
from model_checkpoint.format import check_entries, check_files
from model_checkpoint.manifest import Manifest, decode
from model_checkpoint.notebook_html import html_table
from model_checkpoint.options import ReaderLimits
from model_checkpoint.plan import rank_by_age
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.locate import Root, open_store

log = logging.getLogger("model_checkpoint.repair")

MANIFEST_FILE = "manifest.json"
_OWN_FILES = "its own files"
_TRIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """What a repair found, brought back (or would bring back, after a dry run), and could not."""

    examined: Sequence[CheckpointInfo]
    repaired: Sequence[RepairedFile] = ()
    lost: Sequence[LostChunk] = ()
    unread: Sequence[Damage] = ()  # could not be judged here and now, so nothing was done about it
    mirrored: Sequence[str] = ()  # checkpoints whose copy in the mirror was missing, and is there now
    dry_run: bool = False

    @property
    def ok(self) -> bool:
        """Whether every byte of what was examined is right now (or would be)."""
        return not self.lost and not self.unread

    @property
    def lost_tensors(self) -> tuple[str, ...]:
        """Every tensor that cannot be had back, as ``checkpoint: tensor``."""
        return tuple(sorted({f"{one.checkpoint}: {tensor}" for one in self.lost for tensor in one.tensors}))

    def _repr_html_(self) -> str:
        """How a notebook shows it: what came back, and what is lost."""
        verb = "could be rebuilt" if self.dry_run else "rebuilt"
        rows = [
            *((verb, one.checkpoint, one.file, f"from {', '.join(one.sources)}") for one in self.repaired),
            *(("lost", one.checkpoint, one.file, one.reason) for one in self.lost),
            *(("not readable here", "", one.file, one.problem) for one in self.unread),
        ]
        counts = f"{len(self.repaired)} files {verb}, {len(self.lost)} chunks lost"
        title = f"repair: {len(self.examined)} checkpoints examined, {counts}"
        return html_table(title, ["", "checkpoint", "file", ""], rows)


def repair(
    root: Reference,
    ref: int | str | None = None,
    *,
    source: Root | None = None,
    dry_run: bool = False,
    progress: Listen = None,
) -> RepairReport:
    """Bring damaged and lost files of checkpoints back, bit-exactly, or say precisely what is lost.

    Chunks are taken from equal ones in other checkpoints, from parity files, and from a second store: ``source``, or
    the mirror the checkpoint was saved with. Nothing is ever filled with zeros, and no checkpoint stands in for
    another. Parity files that were asked for and are missing are made as well, and so are copies in a mirror that is
    given as ``source``.

    Args:
        root: A root, or a reference to one checkpoint, such as ``runs/a@100``.
        ref: Which checkpoint of ``root``: a step, or what follows the ``@`` of a reference; all of them by default.
        source: Another root that holds the same checkpoints.
        dry_run: Only find out what could be done; nothing is written.
        progress: Called as bytes are read and rebuilt; True shows a bar.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-repair", {"a": b"bytes"}, step=1)
        >>> mc.repair("memory://doc-repair").ok
        True
    """
    require(dry_run=dry_run, progress=progress)
    store, chosen = _chosen(root, ref)
    second = None if source is None else _source_of(source, chosen)
    with listening(progress, "examining") as emit:
        tally = _RepairTally(store, second, Meter("repair", bytes_in(chosen), emit), dry_run=dry_run)
        for found in chosen:
            tally.treat(found.name)
    return tally.report()


def _chosen(root: Reference, ref: int | str | None) -> tuple[Store, Sequence[ListedCheckpoint]]:
    if ref is not None:
        store, _ = resolve(root)
        return store, choose(store, **parse_ref(f"{store.url}@{ref}").choice)[1][:1]
    store, choice = resolve(root)
    if any(value is not None for value in choice.values()):
        return store, choose(store, **choice)[1][:1]
    require_root(store)
    return store, rank_by_age(scan(store))


def _source_of(source: Root, chosen: Sequence[ListedCheckpoint]) -> Store:
    """The second store; raise if there is none, unless it is a mirror of theirs, which may have to be made anew."""
    store = open_store(source)
    mirrors = {one.summary.mirror for one in chosen if one.summary is not None}
    if not store.exists() and store.url not in mirrors:
        raise CheckpointNotFound(
            f"source={store.url}: there is no root, nor were these checkpoints saved with a mirror there. Name a root "
            "that holds the same checkpoints. Nothing was done.",
            store.url,
        )
    return store


@dataclass(slots=True)
class _RepairTally:
    """One repair, and what has come of it so far."""

    store: Store
    source: Store | None
    meter: Meter
    dry_run: bool = field(kw_only=True)
    examined: list[CheckpointInfo] = field(default_factory=list)
    repaired: list[RepairedFile] = field(default_factory=list)
    lost: list[LostChunk] = field(default_factory=list)
    unread: list[Damage] = field(default_factory=list)
    mirrored: list[str] = field(default_factory=list)

    def report(self) -> RepairReport:
        return RepairReport(
            examined=tuple(self.examined),
            repaired=tuple(self.repaired),
            lost=tuple(self.lost),
            unread=tuple(self.unread),
            mirrored=tuple(self.mirrored),
            dry_run=self.dry_run,
        )

    def treat(self, name: str) -> None:
        """Repair one checkpoint; begin anew if it is replaced meanwhile, leave it if it is deleted."""
        for _ in range(_TRIES):
            try:
                return self._treat(name)
            except Superseded as error:
                log.info("%s", error)
            except CheckpointNotFound:
                return None
        raise Superseded(f"{path_of(self.store, name)}: is being replaced all the time. Stop that, then repair it.")

    def _treat(self, name: str) -> None:
        raw, manifest = self._manifest(name)
        if manifest is None or not self._treat_ranks(name, raw, manifest):
            return
        if manifest.ranks:
            manifest = join_ranks(self.store, manifest)
        self.examined.append(info_of(self.store, manifest))
        second = self.source or _mirror_at(manifest.mirror)
        damage, parity = examine_content(self.store, manifest, self.meter)
        self.unread += [one for one in damage if one.unread]
        hurt = sorted({one.file for one in damage if not one.unread} - {one.file for one in damage if one.unread})
        if hurt:
            target = RepairTarget(self.store, name, raw, manifest)
            self._treat_files(target, manifest, hurt, second)
        if not any(one.checkpoint == name for one in self.lost):
            self._treat_parity(name, manifest, parity)
            self._treat_mirror(name, manifest.mirror)

    # --- the manifest ------------------------------------------------------------------------------------------------

    def _manifest(self, name: str) -> tuple[bytes, Manifest | None]:
        """The manifest of a checkpoint, brought back if need be; None if it is lost or must not be touched."""
        raw, where = self.store.read_manifest(name), path_of(self.store, name)
        try:
            return raw, _decoded(raw, name, where)
        except CorruptedCheckpoint as error:
            problem = error
        except CheckpointException as error:  # of a newer format
            self.unread.append(Damage(problem=str(error), file=MANIFEST_FILE, unread=True))
            return raw, None
        found = find_manifest(self.store, name, self.source or self._known_mirror())
        if found is None:
            lost = LostChunk(
                checkpoint=name,
                file=MANIFEST_FILE,
                chunk=None,
                tensors=(),
                reason=f"no parity file and no second store has it ({problem}), so no tensor of it can be named",
            )
            self.lost.append(lost)
            return raw, None
        if not self.dry_run and not put_manifest(self.store, name, found, damaged=raw):
            raise Superseded(f"{where}: was replaced or deleted while it was being repaired.", where)
        self.repaired.append(
            RepairedFile(checkpoint=name, file=MANIFEST_FILE, nbytes=len(found), sources={"parity or second store": 1})
        )
        return found, _decoded(found, name, where)

    def _known_mirror(self) -> Store | None:
        """The mirror of other checkpoints of the root, where the one in question cannot tell."""
        for one in rank_by_age(scan(self.store)):
            if one.summary is not None and one.summary.mirror:
                return _mirror_at(one.summary.mirror)
        return None

    def _treat_ranks(self, name: str, raw: bytes, manifest: Manifest) -> bool:
        """Bring back manifests of ranks, without which nobody knows what is in their files; False if one is lost."""
        if not manifest.ranks:
            return True
        own = {rank.name for rank in manifest.ranks}
        hurt = sorted(file for file in own if examine_file(self.store, manifest, file))
        if hurt:
            known = rank_files_only(manifest)
            second = self.source or _mirror_at(manifest.mirror)
            self._treat_files(RepairTarget(self.store, name, raw, known), manifest, hurt, second)
        return not hurt or not (self.dry_run or any(one.checkpoint == name for one in self.lost))

    # --- the files ---------------------------------------------------------------------------------------------------

    def _treat_files(self, target: RepairTarget, manifest: Manifest, hurt: Sequence[str], second: Store | None) -> None:
        sources = ChunkSources(target, second)
        try:
            judged = [file for file in hurt if self._survey(sources, target, file)]
            self.meter.expect(sum(target.records[file].size for file in judged))
            for file in judged:
                outcome = rebuild(sources, target, file, manifest.entries, self.meter.add, dry_run=self.dry_run)
                if isinstance(outcome, RepairedFile):
                    log.info("%s/%s: rebuilt %s", target.where, file, dict(outcome.sources))
                    self.repaired.append(outcome)
                    self.lost += [] if self.dry_run else list(_read_back(self.store, manifest, file))
                else:
                    self.lost += outcome
        finally:
            sources.close()

    def _survey(self, sources: ChunkSources, target: RepairTarget, file: str) -> bool:
        try:
            survey(sources, target, file)
        except OSError as error:
            target.damaged.pop(file, None)
            self.unread.append(Damage(problem=str(error), file=file, unread=True))
            return False
        return True

    # --- what protects it --------------------------------------------------------------------------------------------

    def _treat_parity(self, name: str, manifest: Manifest, wrong: Sequence[Damage]) -> None:
        if not wrong or any(one.unread for one in wrong):
            self.unread += [one for one in wrong if one.unread]
            return
        from model_checkpoint.engine.repairing.parity_writer import make_parity  # brings NumPy

        nbytes = 0 if self.dry_run else make_parity(self.store, name)
        for file in sorted({one.file for one in wrong}):
            self.repaired.append(RepairedFile(checkpoint=name, file=file, nbytes=nbytes, sources={_OWN_FILES: 1}))

    def _treat_mirror(self, name: str, url: str) -> None:
        """Make a missing copy, but only where the caller says: nobody writes to where a manifest tells him to."""
        mirror = self.source
        if mirror is None or mirror.url != url or self.dry_run:
            return
        if not mirror.has(name) and all(gone.name != name for gone in mirror.trash()):
            from model_checkpoint.engine.repairing.mirror import copy_checkpoint

            copy_checkpoint(self.store, name, mirror)
            self.mirrored.append(name)


def _decoded(raw: bytes, name: str, where: str) -> Manifest:
    manifest = msgspec.structs.replace(decode(raw, where), name=name)
    check_files((*manifest.files, *manifest.extras), where, ReaderLimits())
    if not manifest.ranks:
        check_entries(manifest.entries, manifest.files, where, ReaderLimits())
    return manifest


def _mirror_at(url: str) -> Store | None:
    """The mirror a manifest speaks of, to be read from; None if there is none that can be."""
    try:
        return open_store(url) if url else None
    except CheckpointException as error:
        log.warning("%s: cannot be used as a second store: %s", url, error)
        return None


def _read_back(store: Store, manifest: Manifest, file: str) -> Iterator[LostChunk]:
    """What is still wrong with a file that was put in place; nothing, unless the medium lies."""
    for damage in examine_file(store, manifest, file):
        yield LostChunk(
            checkpoint=manifest.name,
            file=file,
            chunk=damage.chunk,
            tensors=tuple(damage.tensors),
            reason=f"it was written anew but does not read back right: {damage.problem}",
        )
