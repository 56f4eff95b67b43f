"""Listing: find the checkpoints of a root and pick the one a caller means."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

import msgspec

from model_checkpoint.engine.common.info import CheckpointInfo, damaged_info, info_of, path_of
from model_checkpoint.engine.common.option_checks import as_step, require_words
from model_checkpoint.engine.root.marks import tell_marks
from model_checkpoint.engine.root.protection import tell_protection
from model_checkpoint.engine.root.shared_files import SharedFiles, shares
from model_checkpoint.errors import (
    CheckpointException,
    CheckpointNotFound,
    OptionInvalid,
    UnsafeName,
    WrittenByBackend,
    WrongReference,
)
from model_checkpoint.manifest import (
    HEAD_BYTES,
    OPAQUE,
    Head,
    Manifest,
    Summary,
    decode,
    decode_head,
    decode_summary,
    unpack,
)
from model_checkpoint.name_lists import did_you_mean, some_of
from model_checkpoint.performance.gc_pause import collector_paused
from model_checkpoint.plan import is_newer, newest_first, rank_by_age, sort_names, step_name, told_step
from model_checkpoint.storage.contract.store import Store, read_manifests
from model_checkpoint.storage.locate import Root, UnknownScheme, open_store

if TYPE_CHECKING:  # a listing does without
    from model_checkpoint.plan import Ranking
    from model_checkpoint.tree.nodes.per_rank import RankView


class ListedCheckpoint(msgspec.Struct, frozen=True):
    """One folder of a root: its summary, or the error that keeps us from reading it."""

    name: str
    summary: Head | Summary | None
    error: CheckpointException | None = None

    @property
    def step(self) -> int | None:
        """The step, by the folder's name where the manifest cannot be read."""
        if self.summary is not None:
            return self.summary.step
        return told_step(self.name)

    @property
    def created(self) -> str:
        """Commit time; what cannot be read counts as newest, so that it is never passed over in silence."""
        return self.summary.created if self.summary else "9999"

    @property
    def complete(self) -> bool:
        """Whether nothing was left out; only then it is chosen without being named."""
        return self.summary is None or not self.summary.left_out

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics saved with it."""
        return (unpack(self.summary.metrics) if self.summary else None) or {}

    @property
    def contends(self) -> bool:
        """Whether it may be called the best."""
        from model_checkpoint.plan import contends

        return self.summary is None or contends(unpack(self.summary.metadata) or {})


class Choices(Sequence[ListedCheckpoint]):
    """Checkpoints that answer a question, first choice first; read only as far as somebody asks."""

    def __init__(self, source: Iterator[ListedCheckpoint]) -> None:
        self._source = source
        self._known: list[ListedCheckpoint] = []

    @overload
    def __getitem__(self, index: int) -> ListedCheckpoint: ...
    @overload
    def __getitem__(self, index: slice) -> list[ListedCheckpoint]: ...
    def __getitem__(self, index: int | slice) -> ListedCheckpoint | list[ListedCheckpoint]:
        last = index.stop if isinstance(index, slice) else index + 1
        self._learn(last if last is not None and last > 0 else None)
        return self._known[index]

    def __len__(self) -> int:
        self._learn(None)
        return len(self._known)

    def _learn(self, upto: int | None) -> None:
        missing = None if upto is None else max(0, upto - len(self._known))
        self._known.extend(islice(self._source, missing))


def scan(store: Store, names: Collection[str] | None = None) -> list[ListedCheckpoint]:
    """Read the summary of every committed checkpoint, or of those of ``names`` that there are."""
    return _read_all(store, sorted(store.entries() if names is None else names))


def _read_all(store: Store, names: Sequence[str]) -> list[ListedCheckpoint]:
    heads = read_manifests(store, names, limit=HEAD_BYTES)
    return [found for name, start in heads if (found := _listed(store, name, start)) is not None]


def read_silent(store: Store) -> list[ListedCheckpoint]:
    """Read the summary of every checkpoint whose name does not tell its step."""
    return _read_all(store, sort_names(tuple(store.entries())).silent)


def read_listed(store: Store, name: str) -> ListedCheckpoint | None:
    """Read the summary of one checkpoint; None if there is none of that name."""
    ((_, start),) = read_manifests(store, [name], limit=HEAD_BYTES)
    return _listed(store, name, start)


def _listed(store: Store, name: str, start: bytes | CheckpointException) -> ListedCheckpoint | None:
    """What the first bytes of a manifest tell, or all of them if they must."""
    where = path_of(store, name)
    try:
        if isinstance(start, CheckpointException):
            raise start
        summary = decode_head(start, where) or decode_summary(store.read_manifest(name), where)
    except (CheckpointNotFound, UnsafeName):
        return None  # never committed, deleted since the names were listed, or a link that stands in its place
    except CheckpointException as error:
        return ListedCheckpoint(name, None, error)
    return ListedCheckpoint(name, msgspec.structs.replace(summary, name=name))  # it may have been renamed or copied


@collector_paused()
def read_any_manifest(store: Store, name: str, view: RankView | None = None, *, join: bool = True) -> Manifest:
    """Read the manifest of one checkpoint; its files are those beside it, whatever name it was saved under.

    If many ranks wrote it, its tree is the one of ``view``, or one to look at, and theirs are joined to it, unless the
    caller will.
    """
    manifest = msgspec.structs.replace(decode(store.read_manifest(name), path_of(store, name)), name=name)
    if manifest.world_size == 1 and not manifest.ranks:
        return manifest
    from model_checkpoint.engine.root.rank_manifests import join_ranks  # what one process wrote does without
    from model_checkpoint.tree.nodes.per_rank import RankView, view_of

    tree = view_of(manifest.tree, manifest.world_size, view or RankView(lenient=True))
    viewed = msgspec.structs.replace(manifest, tree=tree)
    return join_ranks(store, viewed) if join else viewed


def load_manifest(store: Store, name: str, view: RankView | None = None, *, join: bool = True) -> Manifest:
    """Read the manifest of a checkpoint whose state the engine itself has written."""
    manifest, where = read_any_manifest(store, name, view, join=join), path_of(store, name)
    if OPAQUE in manifest.features:
        written = unpack(manifest.tree)
        backend = written.get("backend") if isinstance(written, dict) else None
        raise WrittenByBackend(
            f"{where}: was written by the storage backend {backend!r}, which alone knows what is inside. "
            f"Load it through a checkpoint manager that has this backend, or open its files: {_listing(manifest)}.",
            where,
        )
    return manifest


def _listing(manifest: Manifest) -> str:
    names = [record.name for record in manifest.extras]
    return some_of(names, most=4)


def list_checkpoints(root: Root) -> list[CheckpointInfo]:
    """List the committed checkpoints of ``root``, newest first; unusable ones carry a ``problem``.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-list", {"epoch": 3}, step=7)
        >>> [info.step for info in mc.list_checkpoints("memory://doc-list")]
        [7]
    """
    store = open_store(root)
    require_root(store)
    found = rank_by_age(scan(store))
    infos = tell_shares(store, [to_info(store, one) for one in found], found)
    infos = tell_protection(store, infos, {one.name: one.summary for one in found if one.summary is not None})
    return tell_marks(store, infos)


def tell_shares(
    store: Store, infos: Sequence[CheckpointInfo], found: Sequence[ListedCheckpoint]
) -> list[CheckpointInfo]:
    """Add to ``infos`` what each has in common with any other checkpoint of ``found``."""
    common = shares(store, {one.name: one.summary for one in found if one.summary is not None})
    none = SharedFiles()
    return [
        replace(info, shared_bytes=share.nbytes, shared_with=share.names)
        for info in infos
        for share in [common.get(info.prefix, none)]
    ]


def to_info(store: Store, found: ListedCheckpoint) -> CheckpointInfo:
    """Sum up one folder, readable or not."""
    if found.summary is not None:
        return info_of(store, found.summary)
    return damaged_info(store, found.name, step=found.step, problem=str(found.error))


def require_root(store: Store) -> None:
    """Raise where no root is, or where a root is asked for and one of its checkpoints is named."""
    above = _root_above(store)
    if above:
        raise WrongReference(f"{store.url}: names one checkpoint, give its root: {above}.", store.url)
    _require_there(store)


def _root_above(store: Store) -> str:
    """The root of the one checkpoint that the place of a store names; empty if it names none."""
    root, mark, choice = store.url.rpartition("@")
    folder, below, name = store.url.rpartition("/checkpoints/")
    with suppress(UnknownScheme):  # a store of the caller's own
        if below and "/" not in name and open_store(folder).has(name):
            return folder
        if mark and "/" not in choice and not store.exists() and open_store(root).names():
            return root
    return ""


def _require_there(store: Store) -> None:
    if not store.exists():
        raise CheckpointNotFound(
            f"{store.url}: no such checkpoint root. Check the path, or save there first with mc.save.",
            store.url,
        )


def candidates(
    store: Store, *, step: int | None = None, id: str | None = None, best: str | None = None, name: str | None = None
) -> Choices:
    """Return what answers the question, first choice first; raise when nothing does."""
    if sum(choice is not None for choice in (step, id, best, name)) > 1:
        raise OptionInvalid("choose a checkpoint by one of step=, id=, best= or name=, not by several at once.")
    require_words(id=id, best=best, name=name)
    choices = Choices(_found(store, None if step is None else as_step(step), id, best, name))
    _ = choices[0]  # what nothing answers is told now, not when somebody looks
    return choices


def _found(
    store: Store, step: int | None, id: str | None, best: str | None, name: str | None
) -> Iterator[ListedCheckpoint]:
    if best is not None:
        return _by_metric(store, best)
    if name is not None:
        return _by_name(store, name)
    if step is not None:
        return _by_step(store, step)
    return _newest(store) if id is None else _by_id(store, id)


def _by_name(store: Store, name: str) -> Iterator[ListedCheckpoint]:
    hit = read_listed(store, name)
    if hit is None:
        raise _no_such(store, _ranked(store), f"checkpoint named {name!r}")
    yield hit
    yield from (one for one in by_age(store, hit) if one.complete and is_newer(hit, one))


def _by_step(store: Store, step: int) -> Iterator[ListedCheckpoint]:
    """The folder of the step; only if that does not have it, whatever else was saved at that step."""
    hit = read_listed(store, step_name(step))
    if hit is None or hit.step != step or not hit.complete:
        ranked = _ranked(store)
        yield from _from(store, ranked, [one for one in ranked if one.step == step], f"step {step}")
        return
    yield hit
    older = (one for one in by_age(store, hit) if one.step is None or one.step <= step)
    yield from (one for one in older if one.complete and one.name != hit.name)


def _by_id(store: Store, start: str) -> Iterator[ListedCheckpoint]:
    ranked = _ranked(store)
    return iter(_from(store, ranked, _with_id(store, ranked, start), f"checkpoint with id {start!r}"))


def _newest(store: Store) -> Iterator[ListedCheckpoint]:
    """What may be chosen without being named: all that is complete."""
    passed: list[str] | None = []
    for found in by_age(store):
        if found.complete:
            passed = None
            yield found
        elif passed is not None:
            passed.append(found.name)
    if passed is None:
        return
    if not passed:
        raise _nothing(store)
    raise CheckpointNotFound(
        f"{store.url}: only incomplete emergency checkpoints: {some_of(passed)}. "
        "Load one by name=, with parts=[...] for what it has.",
        store.url,
    )


def by_age(store: Store, hit: ListedCheckpoint | None = None) -> Iterator[ListedCheckpoint]:
    """All checkpoints, newest first, or those whose names do not tell that they are newer than ``hit``."""
    return newest_first(
        sort_names(tuple(store.entries())),
        read=lambda name: read_listed(store, name),
        read_all=lambda names: _read_all(store, names),
        upto=None if hit is None else -1 if hit.step is None else hit.step,
    )


def _ranked(store: Store) -> list[ListedCheckpoint]:
    """Every checkpoint, newest first; raise if there is none."""
    found = rank_by_age(scan(store))
    if not found:
        raise _nothing(store)
    return found


def _nothing(store: Store) -> CheckpointNotFound:
    _require_there(store)
    return CheckpointNotFound(
        f"{store.url}: no committed checkpoint. A save that was killed leaves none; save again, or check the path.",
        store.url,
    )


def _with_id(store: Store, ranked: Sequence[ListedCheckpoint], start: str) -> list[ListedCheckpoint]:
    """Those with an id of that beginning; one that fits several chooses nothing."""
    hits = [f for f in ranked if f.summary is not None and f.summary.id.startswith(start)]
    if len(hits) > 1:
        raise CheckpointNotFound(
            f"{store.url}: {len(hits)} checkpoints have an id that begins with {start!r}: "
            f"{some_of([f.name for f in hits])}. Give more of the id.",
            store.url,
        )
    return hits


def _from(
    store: Store, ranked: Sequence[ListedCheckpoint], hits: Sequence[ListedCheckpoint], what: str
) -> list[ListedCheckpoint]:
    """The hit and everything older, which is where a fallback goes on."""
    if not hits:
        raise _no_such(store, ranked, what)
    older = list(ranked)[list(ranked).index(hits[-1]) + 1 :]
    return [*sorted(hits, key=lambda f: not f.complete), *(f for f in older if f.complete)]


def _no_such(store: Store, ranked: Sequence[ListedCheckpoint], what: str) -> CheckpointNotFound:
    steps = some_of([f.name if f.step is None else f.step for f in ranked])
    return CheckpointNotFound(
        f"{store.url}: no {what}; there are {len(ranked)}: {steps}. "
        "Choose one of them, or leave the choice out for the newest.",
        store.url,
    )


def _by_metric(store: Store, best: str) -> Iterator[ListedCheckpoint]:
    from model_checkpoint.plan import Ranking

    found = [one for one in _ranked(store) if one.complete and one.contends]
    metrics = [one.metrics for one in found]
    ranking = Ranking.parse(best, known={name for measured in metrics for name in measured})
    ranked = ranking.order(found, metrics)
    if not ranked:
        raise CheckpointNotFound(f"{store.url}: {unmeasured(ranking, metrics)}", store.url)
    return iter(ranked)


def unmeasured(ranking: Ranking, metrics: Sequence[Mapping[str, Any]]) -> str:
    """Why nothing can be ranked, and the nearest thing a caller may have meant."""
    known = sorted({name for measured in metrics for name in measured})
    missing = [name for name in ranking.criteria[0].names if name not in known]
    if not missing:
        return f"no checkpoint has a number for {ranking.criteria[0].text}; NaN is never best."
    hint = did_you_mean(missing[0], known, "Save with metrics={...} to choose by them.")
    return f"no checkpoint has a metric {missing[0]!r}; known: {some_of(known)}. {hint}"
