"""Save ranks: the states of many ranks become one durable checkpoint, or none, and every rank learns which.

Every rank takes its state apart and tells rank 0 what it has. Rank 0 names the save and opens its stage. Each plans for
itself what it writes (:meth:`RankSave.begin`), writes it and votes with the digest of its manifest. When all have, rank
0 publishes the manifest of all by one rename; whoever loses patience takes the stage away by another (``finish``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import xxhash

from model_checkpoint import tree
from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.common.info import CheckpointInfo, path_of
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.jobs import followups, inflight
from model_checkpoint.engine.jobs.followups import FollowUp
from model_checkpoint.engine.jobs.inflight import Busy
from model_checkpoint.engine.ranks.conversation import Conversation
from model_checkpoint.engine.ranks.layout_inference import agreed, read_as
from model_checkpoint.engine.ranks.pooling import (
    RankState,
    differing,
    pool_parts,
    pool_signs,
    pool_tree,
    rank_state,
    settled,
)
from model_checkpoint.engine.ranks.rank_agreement import excused, other_root, require_same_options
from model_checkpoint.engine.ranks.structure import ArraySign, structure_of
from model_checkpoint.engine.ranks.words import Word
from model_checkpoint.engine.root.recover import recover_once
from model_checkpoint.engine.writing.incremental import hash_contents
from model_checkpoint.engine.writing.rank_saves.rank_ending import RankEnding
from model_checkpoint.engine.writing.rank_saves.rank_parent import parent_name, rank_parent
from model_checkpoint.engine.writing.rank_saves.rank_plan import RankPlan, plan_rank
from model_checkpoint.engine.writing.request import SaveRequest, refuse_own_mirror
from model_checkpoint.engine.writing.save_plan import KeptFiles, SavePlan, plan_flat, repeat_plan
from model_checkpoint.engine.writing.slabs import FileJob, write_files
from model_checkpoint.errors import BackgroundSaveFailed, CheckpointException, OptionInvalid, RootNotShared
from model_checkpoint.events import Emit
from model_checkpoint.manifest import Layout
from model_checkpoint.options import CheckpointFormat, CompressionLevel
from model_checkpoint.performance.gc_pause import collector_paused
from model_checkpoint.plan.sharding.holders import renamed_ranks
from model_checkpoint.state import Flat, Leaf
from model_checkpoint.storage.contract.shared import SharedStore
from model_checkpoint.storage.contract.store import Store

log = logging.getLogger("model_checkpoint.save")

_BEGINNING = {"said": "hello", "heard": "open"}

Move = Callable[[list[FileJob]], None]  # brings every byte of the files to the medium and seals them
Enter = Callable[[Busy], bool]  # waits for earlier saves of this process as rank 0 wants


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRequest:
    """What one rank asks for."""

    request: Callable[[], SaveRequest]
    overwrite: bool | str
    may_replace: Callable[[SaveRequest], bool]
    obsolete: Callable[[str], list[str]]  # what a checkpoint to be replaced consists of


def save_on_ranks(
    store: Store, asked: RankRequest, state: Any, *, coordinator: Coordinator, progress: Listen
) -> CheckpointInfo:
    """Save together with all other ranks; see :func:`model_checkpoint.save`."""

    def enter(_: Busy) -> bool:
        inflight.raise_unseen(store.url)
        followups.warn_unseen(store.url)
        return True

    saving = RankSave(store, asked, coordinator)
    saving.begin(state, enter=enter)
    with listening(progress, "saving") as emit:
        return saving.finish(lambda jobs: write_files(jobs, emit=saving.heard(emit)))[0]


class RankSave:
    """One save as one rank sees it, from its first word to the verdict."""

    def __init__(self, store: Store, asked: RankRequest, coordinator: Coordinator) -> None:
        self._store, self._asked = store, asked
        self._open = ExitStack()
        self.talk = self._open.enter_context(Conversation(coordinator, "save"))
        self._ending: RankEnding | None = None
        self._flat: Flat | None = None
        self.origins: Sequence[int] = ()  # which of the rank's own arrays each piece of the plan is of

    def heard(self, emit: Emit) -> Emit:
        """Let bytes written be a sign of life, too."""
        return self.talk.heard(emit)

    def begin(self, state: Any, *, enter: Enter, busy: Busy = "wait") -> SavePlan | None:
        """Agree with the others and plan what this rank writes; None if rank 0 wants the save skipped.

        ``enter`` waits for earlier saves of this process; False means to skip this one, which only rank 0 may say.
        """
        with ExitStack() as on_failure:
            on_failure.push(self._open)
            planned = self._begin(state, enter, busy)
            if planned is not None:
                on_failure.pop_all()
            return planned

    def excuse(self, error: BaseException) -> BaseException:
        """Tell the others that this rank cannot even ask; return what to raise."""
        with self._open:
            return excused(self.talk, error, **_BEGINNING)

    def _begin(self, state: Any, enter: Enter, busy: Busy) -> SavePlan | None:
        talk = self.talk
        try:
            order = replace(self._asked.request(), rank=talk.rank)
            shared = _require_shared(self._store, order)
            if talk.leads:
                with talk.waiting():
                    if not enter(busy):
                        talk.say("open", {"skip": True})
                        return None
            mine = self._prepare(order, state)
        except BaseException as error:
            raise excused(talk, error, **_BEGINNING) from error
        if talk.leads:
            return self._lead(order, shared, mine, busy)
        with talk.interrupts_told("hello", "detail", "vote"):
            return self._follow(order, shared, mine, enter)

    def _prepare(self, order: SaveRequest, state: Any) -> RankState:
        """Take the state apart and fingerprint what other ranks may have too without saying so."""
        talk = self.talk
        flat = state if isinstance(state, Flat) else tree.flatten(state)
        self._flat = flat = msgspec.structs.replace(flat, leaves=_placed(flat.leaves, talk.places))
        whole = {i: one for i, leaf in enumerate(flat.leaves) if (one := _fingerprinted(leaf, talk.world_size))}
        contents = talk.attended(lambda: hash_contents(whole, order.limits.chunk_bytes, talk.moved)) if whole else {}
        started = time.perf_counter()
        with collector_paused():
            structure = structure_of(flat, talk.rank, talk.world_size)
            mine = rank_state(structure, contents)
            self._hello = {
                "options": _common_options(self._asked, order),
                "digests": structure.digests(contents),
                "misfits": structure.misfits,
            }
        self._planning = time.perf_counter() - started
        return mine

    def _lead(self, order: SaveRequest, shared: SharedStore, mine: RankState, busy: Busy) -> SavePlan:
        """Rank 0: name the save and open its stage."""
        talk, stage = self.talk, None
        try:
            words = talk.hear_all("hello", self._hello)
            require_same_options(words, self._store.url)
            replacing = self._asked.may_replace(order)
            opened: Word = {
                "root": self._store.url,
                "name": order.name,
                "attempt": order.attempt,
                "pooled": differing([word["digests"] for word in words]),
                "nested": agreed(words),
                "busy": busy,
                "parent": parent_name(self._store) if order.incremental else "",
            }
            log.info("%s: saving on %d ranks", path_of(self._store, order.name), talk.world_size)
            recover_once(self._store)
            stage = shared.stage_shared(order.name, order.attempt)
            talk.say("open", opened)
        except BaseException as error:
            if stage is not None:
                stage.abort()
            raise talk.fail("open", error) from error
        self._ending = RankEnding(talk, self._store, shared, order, stage)
        self._ending.replace = (lambda: self._asked.obsolete(order.name)) if replacing else None
        try:
            return self._planned(opened, self._pool(opened["pooled"], mine), mine)
        except BaseException as error:  # raised there, once all ranks know
            raise self._ending.failed_early(error) from error

    @collector_paused()
    def _pool(self, pooled: list[str], mine: RankState) -> Word | None:
        """What rank 0 makes of the parts that ranks do not have alike, once each has told what it has."""
        if not pooled:
            return None
        if not self.talk.leads:
            self.talk.say("detail", mine.told(pooled))
            return self.talk.hear_leader("pooled", end="verdict")
        details = self.talk.hear_all("detail", mine.told(pooled))
        known = settled(mine.structure, pooled, self.talk.world_size).known
        told: Word = pool_parts(details, pooled, known)
        self.talk.say("pooled", told)
        return told

    def _follow(self, order: SaveRequest, shared: SharedStore, mine: RankState, enter: Enter) -> SavePlan | None:
        """Another rank: hear what the save is called, and join it."""
        talk = self.talk
        talk.say("hello", self._hello)
        try:
            opened = talk.hear_leader("open")
        except BackgroundSaveFailed:
            with suppress(BackgroundSaveFailed):  # the same failure as this rank met it: told now
                inflight.raise_unseen(self._store.url)
            raise
        if opened.get("skip"):
            return None
        order = replace(order, name=opened["name"], attempt=opened["attempt"])
        self._ending = RankEnding(talk, self._store, shared, order, None)
        try:
            with talk.waiting():
                enter("queue" if opened["busy"] == "queue" else "wait")  # rank 0 has decided not to skip it
            try:
                self._ending.stage = shared.join(order.name, order.attempt)
            except RootNotShared as error:
                raise RootNotShared(
                    f"{error.message}{other_root(self._store.url, opened['root'])}", error.checkpoint_path
                ) from error
            return self._planned(opened, self._pool(opened["pooled"], mine), mine)
        except BaseException as error:  # raised there, as the others raise it
            talk.say_error("detail", error)
            raise self._ending.failed_early(error) from error

    @collector_paused()
    def _planned(self, opened: Word, told: Word | None, mine: RankState) -> SavePlan:
        ending, flat, talk = self._ending, self._flat, self.talk
        if ending is None or flat is None or ending.stage is None:
            raise AssertionError("a save is opened before it is planned")
        started = time.perf_counter()
        structure = mine.structure
        signs = () if told is None else told["signs"]
        key = (*opened["pooled"], *opened["nested"], xxhash.xxh3_128_hexdigest(msgspec.json.encode(signs)))

        def find() -> RankPlan:
            found = pool_signs(structure, opened["pooled"], told, talk.world_size)
            return plan_rank(structure, _read(found, opened["nested"]), talk.rank)

        plan = structure.once(("plan", key), find)
        order = _for_parts(ending.order)
        sources = plan.sources(flat.leaves)
        kept = structure.found.get(("files", key, order.limits, order.parity))
        if kept is None or not KeptFiles.fits(order):
            parent = rank_parent(self._store, opened["parent"], plan, talk.rank) if opened["parent"] else None
            pieces = Flat(None, plan.bind(flat.leaves, sources))
            planned = talk.attended(
                lambda: plan_flat(self._store, order, pieces, parent=parent, stage=ending.stage, emit=talk.moved)
            )
            structure.found["files", key, order.limits, order.parity] = KeptFiles.of(planned)
        else:
            planned = repeat_plan(self._store, order, sources, kept)
        planned.stage = None  # the ending has it
        self._planning += time.perf_counter() - started
        log.info("%s: planned %d arrays in %.6f s", planned.where, len(plan.signs), self._planning)
        ending.prepare(planned, plan, lambda: pool_tree(structure, opened["pooled"], told, talk.world_size))
        self.origins = [piece.leaf for piece in plan.pieces]
        return planned

    def take_flat(self) -> Flat:
        """The rank's own state, once; it is not kept longer than it takes to plan."""
        flat, self._flat = self._flat, None
        if flat is None:
            raise AssertionError("a state is asked for once, after the save is begun")
        return flat

    def finish(self, move: Move) -> tuple[CheckpointInfo, FollowUp | None]:
        """Write, vote, and hear what became of it."""
        self._flat = None
        with self._open:
            return self.talk.attended(lambda: self._require_ending().finish(move))

    def abandon(self, error: BaseException) -> None:
        """Tell the others that this rank will not write its part after all, and wait until they have heard."""
        self._flat = None
        with self._open:
            try:
                self._require_ending().abandon(error)
            except BaseException as told:
                if told is not error and not isinstance(told, CheckpointException):  # else what all of them raise
                    raise

    def _require_ending(self) -> RankEnding:
        if self._ending is None:
            raise AssertionError("a save is begun before it is ended")
        return self._ending


def _require_shared(store: Store, order: SaveRequest) -> SharedStore:
    if order.incremental and order.layout is not CheckpointFormat.MULTI_SHARD:
        raise OptionInvalid(
            f"{store.url}: files of whole tensors are made anew from the parts of many ranks, so they repeat none. "
            "Leave incremental= or format= out. Nothing was done."
        )
    refuse_own_mirror(store, order)
    if not isinstance(store, SharedStore):
        raise OptionInvalid(
            f"{store.url}: many ranks cannot write one checkpoint to this kind of store. Save to a file system that "
            "all of them share, or to a bucket. Nothing was done."
        )
    return store


def _for_parts(order: SaveRequest) -> SaveRequest:
    """How a rank writes its part; where whole tensors are wanted, the parts are read once more and go."""
    if order.layout is CheckpointFormat.MULTI_SHARD:
        return order
    return replace(
        order,
        layout=CheckpointFormat.MULTI_SHARD,
        compression=CompressionLevel.NONE,
        parity="",
        stem=f"part{order.rank}",
    )


def _placed(leaves: Sequence[Leaf], places: Mapping[int, int]) -> list[Leaf]:
    """Leaves whose layouts speak of the coordinator's ranks; the program may count more of them."""
    known: dict[int, Layout] = {}  # most arrays share one object, and a mesh may have thousands of ranks
    made = []
    for leaf in leaves:
        sharding = leaf.sharding
        if sharding is None or not sharding.declared:
            made.append(leaf)
            continue
        layout = known.get(id(sharding.layout))
        if layout is None:
            layout = known[id(sharding.layout)] = _renamed(leaf.name, sharding.layout, places)
        same = layout is sharding.layout
        made.append(leaf if same else leaf._replace(sharding=replace(sharding, layout=layout)))
    return made


def _renamed(name: str, layout: Layout, places: Mapping[int, int]) -> Layout:
    odd = {*layout.ranks, *(rank for region in layout.regions for rank in region.ranks)} - places.keys()
    if odd:
        raise OptionInvalid(
            f"{name}: lies on rank {min(odd)}, which is not of the coordinator's group. Pass a coordinator of all "
            "ranks that hold parts of it. Nothing was done."
        )
    return renamed_ranks(layout, places)


def _fingerprinted(leaf: Leaf, world_size: int) -> Leaf | None:
    """What of an array is compared with other ranks: all of one that is whole, this part of one on some ranks only."""
    if leaf.sharding is None:
        return leaf
    layout = leaf.sharding.layout
    if layout.regions or not leaf.sharding.declared or len(layout.ranks) == world_size:
        return None
    return leaf._replace(source=leaf.sharding.arrays[0].source)


def _common_options(asked: RankRequest, order: SaveRequest) -> dict[str, Any]:
    """What every rank must ask for alike; a name or an id made for the attempt is rank 0's to choose."""
    return {
        "step": order.step,
        "name": "" if order.attempt[:8] in order.name else order.name,
        "id": order.given_id,
        "format": order.layout.value,
        "compression": order.compression.value,
        "incremental": order.incremental,
        "parity": order.parity,
        "overwrite": asked.overwrite,
        "mirror": "" if order.mirror is None else order.mirror.url,
    }


def _read(signs: list[ArraySign], nested: list[str]) -> list[ArraySign]:
    """The arrays with their layouts in the reading that was agreed on."""
    if not nested:
        return signs
    return [
        sign if sign.layout is None else msgspec.structs.replace(sign, layout=read_as(sign.shape, sign.layout, nested))
        for sign in signs
    ]
