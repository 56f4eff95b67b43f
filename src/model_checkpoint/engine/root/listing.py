"""Listing: find the checkpoints of a root and pick the one a caller means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import msgspec

from model_checkpoint.engine.common.info import CheckpointInfo, damaged_info, info_of, path_of
from model_checkpoint.engine.common.option_checks import as_step, require_words
from model_checkpoint.engine.root.shared_files import SharedFiles, shares
from model_checkpoint.errors import CheckpointException, CheckpointNotFound, OptionInvalid
from model_checkpoint.manifest import Manifest, Summary, decode, decode_summary, unpack
from model_checkpoint.plan import parse_best, rank_by_age, rank_by_metric
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.locate import Root, open_store
from model_checkpoint.tree.nodes.gc_pause import collector_paused

_STEP_NAME = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True, slots=True)
class ListedCheckpoint:
    """One folder of a root: its summary, or the error that keeps us from reading it."""

    name: str
    summary: Summary | None
    error: CheckpointException | None = None

    @property
    def step(self) -> int | None:
        """The step, by the folder's name where the manifest cannot be read."""
        if self.summary is not None:
            return self.summary.step
        match = _STEP_NAME.fullmatch(self.name)
        return int(match[1]) if match else None

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


def step_name(step: int) -> str:
    """The folder of a step.

    Example:
        >>> step_name(100)
        'step-00000100'
    """
    return f"step-{step:08d}"


def scan(store: Store) -> list[ListedCheckpoint]:
    """Read the summary of every committed checkpoint."""
    return [found for name in sorted(store.names()) if (found := _read(store, name)) is not None]


def _read(store: Store, name: str) -> ListedCheckpoint | None:
    where = path_of(store, name)
    try:
        summary = decode_summary(store.read_manifest(name), where)
        return ListedCheckpoint(
            name, msgspec.structs.replace(summary, name=name)
        )  # a folder may have been renamed or copied
    except CheckpointNotFound:
        return None  # deleted since the names were listed
    except CheckpointException as error:
        return ListedCheckpoint(name, None, error)


@collector_paused()
def load_manifest(store: Store, name: str) -> Manifest:
    """Read the manifest of one checkpoint; its files are those beside it, whatever name it was saved under."""
    return msgspec.structs.replace(decode(store.read_manifest(name), path_of(store, name)), name=name)


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
    return tell_shares(store, [to_info(store, one) for one in found], found)


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
    """Raise when there is no such root, naming the nearest thing a caller may have meant."""
    if not store.exists():
        raise CheckpointNotFound(
            f"{store.url}: no such checkpoint root. Check the path, or save there first with mc.save.",
            store.url,
        )


def candidates(
    store: Store, *, step: int | None = None, id: str | None = None, best: str | None = None, name: str | None = None
) -> list[ListedCheckpoint]:
    """Return what answers the question, first choice first; raise when nothing does."""
    if sum(choice is not None for choice in (step, id, best, name)) > 1:
        raise OptionInvalid("choose a checkpoint by one of step=, id=, best= or name=, not by several at once.")
    require_words(id=id, best=best, name=name)
    step = None if step is None else as_step(step)
    require_root(store)
    found = scan(store)
    if not found:
        raise CheckpointNotFound(
            f"{store.url}: no committed checkpoint. A save that was killed leaves none; save again, or check the path.",
            store.url,
        )
    if best is not None:
        return _by_metric(store, [f for f in found if f.complete], best)
    ranked = rank_by_age(found)
    if name is not None:
        return _from(store, ranked, [f for f in ranked if f.name == name], f"checkpoint named {name!r}")
    if step is not None:
        return _from(store, ranked, [f for f in ranked if f.step == step], f"step {step}")
    if id is not None:
        return _from(store, ranked, _with_id(store, ranked, id), f"checkpoint with id {id!r}")
    return _complete(store, ranked)


def _with_id(store: Store, ranked: Sequence[ListedCheckpoint], start: str) -> list[ListedCheckpoint]:
    """Those with an id of that beginning; one that fits several chooses nothing."""
    hits = [f for f in ranked if f.summary is not None and f.summary.id.startswith(start)]
    if len(hits) > 1:
        names = ", ".join(f.name for f in hits[:8])
        raise CheckpointNotFound(
            f"{store.url}: {len(hits)} checkpoints have an id that begins with {start!r}: {names}"
            f"{', ...' if len(hits) > 8 else ''}. Give more of the id.",
            store.url,
        )
    return hits


def _from(
    store: Store, ranked: Sequence[ListedCheckpoint], hits: Sequence[ListedCheckpoint], what: str
) -> list[ListedCheckpoint]:
    """The hit and everything older, which is where a fallback goes on."""
    if not hits:
        steps = ", ".join(f.name if f.step is None else str(f.step) for f in ranked[:8])
        raise CheckpointNotFound(
            f"{store.url}: no {what}; there are {len(ranked)}: {steps}{', ...' if len(ranked) > 8 else ''}. "
            "Choose one of them, or leave the choice out for the newest.",
            store.url,
        )
    older = list(ranked)[list(ranked).index(hits[-1]) + 1 :]
    return [*sorted(hits, key=lambda f: not f.complete), *(f for f in older if f.complete)]


def _complete(store: Store, ranked: Sequence[ListedCheckpoint]) -> list[ListedCheckpoint]:
    """What may be chosen without being named."""
    chosen = [f for f in ranked if f.complete]
    if not chosen:
        raise CheckpointNotFound(
            f"{store.url}: only incomplete emergency checkpoints: {', '.join(f.name for f in ranked[:8])}. "
            "Load one by name=, with parts=[...] for what it has.",
            store.url,
        )
    return chosen


def _by_metric(store: Store, found: Sequence[ListedCheckpoint], best: str) -> list[ListedCheckpoint]:
    wanted = parse_best(best)
    ranked = rank_by_metric(found, [f.metrics for f in found], wanted)
    if not ranked:
        known = sorted({name for f in found for name in f.metrics})
        near = get_close_matches(wanted.metric, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else " Save with metrics={...} to choose by them."
        raise CheckpointNotFound(
            f"{store.url}: no checkpoint has a metric {wanted.metric!r}; known: {', '.join(known) or 'none'}.{hint}",
            store.url,
        )
    return ranked
