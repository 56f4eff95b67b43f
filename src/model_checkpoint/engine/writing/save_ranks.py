"""Save ranks: the states of many ranks become one durable checkpoint, or none, and every rank learns which.

Every rank takes its state apart and tells rank 0 what it has. Rank 0 names the save and opens its stage. Each plans for
itself what it writes, writes it, and votes with the digest of its own manifest. When all have, rank 0 writes the
manifest of the checkpoint and publishes it by one rename. Whoever loses patience takes the stage away by another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from model_checkpoint import tree
from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.common.info import CheckpointInfo, info_of, path_of
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.ranks.conversation import Conversation, Word
from model_checkpoint.engine.ranks.pooling import (
    Pool,
    RankState,
    differing,
    make_pool,
    pool_parts,
    rank_state,
    settled_signs,
)
from model_checkpoint.engine.ranks.readings import agreed, misfits, read_as
from model_checkpoint.engine.root.recover import recover_once
from model_checkpoint.engine.writing.incremental import hash_contents
from model_checkpoint.engine.writing.rank_part import (
    LayoutTable,
    PartRecord,
    compose_ranks,
    piece_leaves,
    require_files,
    shares_of,
    write_part,
)
from model_checkpoint.engine.writing.request import SaveRequest
from model_checkpoint.errors import (
    CheckpointException,
    DurabilityUnknown,
    OptionInvalid,
    RankLost,
    StorageFailure,
)
from model_checkpoint.events import Emit, Progress
from model_checkpoint.manifest import (
    Manifest,
    decode_summary,
    encode,
)
from model_checkpoint.options import CheckpointFormat
from model_checkpoint.plan.sharding.holders import renamed_ranks
from model_checkpoint.state import Flat, Leaf
from model_checkpoint.storage.contract.shared import SharedStore
from model_checkpoint.storage.contract.store import Attempt, Store

log = logging.getLogger("model_checkpoint.save")

_SAME = ("step", "name", "format", "compression")  # what every rank must ask for alike


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What one rank brings along."""

    flat: Flat
    state: RankState
    hello: Word


def save_on_ranks(
    store: Store,
    request: Callable[[], SaveRequest],
    state: Any,
    *,
    coordinator: Coordinator,
    may_replace: Callable[[SaveRequest], bool],
    obsolete: Callable[[str], list[str]],
    wish: Mapping[str, Any],
    progress: Listen,
) -> CheckpointInfo:
    """Save together with all other ranks; see :func:`model_checkpoint.save`."""
    with Conversation(coordinator, "save") as talk:
        try:
            order = replace(request(), rank=talk.rank)
            shared = _require_shared(store, order)
            mine = _prepare(order, state, talk, wish)
        except BaseException as error:
            raise _excused(talk, error) from error
        with listening(progress, "saving") as emit:
            part = _Part(talk, store, shared, order, mine, _both(talk.moved, emit))
            if talk.leads:
                return _lead(part, may_replace, obsolete)
            return _follow(part)


def _both(first: Emit, second: Emit) -> Emit:
    def emit(event: Progress) -> None:
        first(event)
        second(event)

    return emit


def _excused(talk: Conversation, error: BaseException) -> BaseException:
    """Tell the others why this rank does not even begin; return what to raise."""
    if talk.leads:
        return talk.fail("open", error)
    talk.say_error("hello", error)
    if not isinstance(error, Exception):
        return error
    try:
        talk.hear_leader("open")
    except CheckpointException as told:
        return told
    return error


def _require_shared(store: Store, order: SaveRequest) -> SharedStore:
    if order.layout is not CheckpointFormat.MULTI_SHARD or order.incremental:
        raise OptionInvalid(
            f"{store.url}: many ranks write files of their own, each anew. Leave format= and incremental= out; "
            "`mckpt export` makes files of whole tensors of the checkpoint. Nothing was done."
        )
    if order.parity or order.mirror is not None:
        raise OptionInvalid(
            f"{store.url}: the files of many ranks get no parity and no mirror. Leave parity= and mirror= out. "
            "Nothing was done."
        )
    if not isinstance(store, SharedStore):
        raise OptionInvalid(
            f"{store.url}: many ranks cannot write one checkpoint to this kind of store. Save to a file system that "
            "all of them share, and copy the checkpoint from there. Nothing was done."
        )
    return store


def _prepare(order: SaveRequest, state: Any, talk: Conversation, wish: Mapping[str, Any]) -> _Prepared:
    """Take the state apart and fingerprint what other ranks may have too without saying so."""
    flat = tree.flatten(state)
    flat = replace(flat, leaves=[_placed(leaf, talk.places) for leaf in flat.leaves])
    whole = {i: one for i, leaf in enumerate(flat.leaves) if (one := _fingerprinted(leaf, talk.world_size))}
    layouts = {i: leaf.sharding.layout for i, leaf in enumerate(flat.leaves) if leaf.sharding is not None}
    mine = rank_state(flat, hash_contents(whole, order.limits.chunk_bytes), layouts)
    laid = [
        (leaf.shape, leaf.sharding.layout, [one.shape for one in leaf.sharding.arrays])
        for leaf in flat.leaves
        if leaf.sharding is not None
    ]
    hello = {"wish": dict(wish), "digests": mine.digests(), "misfits": misfits(laid, talk.rank)}
    return _Prepared(flat, mine, hello)


def _placed(leaf: Leaf, places: Mapping[int, int]) -> Leaf:
    """A leaf whose layout speaks of the coordinator's ranks; the program may count more of them."""
    if leaf.sharding is None or not leaf.sharding.declared:
        return leaf
    try:
        layout = renamed_ranks(leaf.sharding.layout, places)
    except KeyError as error:
        raise OptionInvalid(
            f"{leaf.name}: lies on rank {error}, which is not of the coordinator's group. Pass a coordinator of all "
            "ranks that hold parts of it. Nothing was done."
        ) from None
    return leaf._replace(sharding=replace(leaf.sharding, layout=layout))


def _fingerprinted(leaf: Leaf, world_size: int) -> Leaf | None:
    """What of an array is compared with other ranks: all of one that is whole, this part of one on some ranks only."""
    if leaf.sharding is None:
        return leaf
    layout = leaf.sharding.layout
    if layout.regions or not leaf.sharding.declared or len(layout.ranks) == world_size:
        return None
    return leaf._replace(source=leaf.sharding.arrays[0].source)


@dataclass(frozen=True, slots=True)
class _Part:
    """One rank's part in a save."""

    talk: Conversation
    store: Store
    shared: SharedStore
    order: SaveRequest
    mine: _Prepared
    emit: Emit

    @property
    def where(self) -> str:
        """Where the checkpoint will lie."""
        return path_of(self.store, self.order.name)

    def named(self, opened: Word) -> _Part:
        """The same, with the name and the attempt that rank 0 chose."""
        return replace(self, order=replace(self.order, name=opened["name"], attempt=opened["attempt"]))

    def pool(self, opened: Word, told: Mapping[str, Any] | None) -> Pool:
        """What all ranks have, as every rank puts it together."""
        made = make_pool(self.mine.state, opened["pooled"], told, self.talk.world_size)
        nested = opened["nested"]
        signs = [
            msgspec.structs.replace(sign, layout=read_as(sign.shape, sign.layout, nested))
            if nested and sign.layout is not None
            else sign
            for sign in made.signs
        ]
        return Pool(made.tree, signs)

    def write(self, stage: Attempt, pool: Pool, table: LayoutTable) -> PartRecord:
        """Write what is this rank's to write."""
        shares = shares_of(pool, table, self.talk.rank)
        own = pool.own(self.mine.state, self.talk.rank)
        leaves = piece_leaves(pool, shares, own, self.mine.flat.leaves)
        return write_part(self.store, stage, self.order, leaves, shares, emit=self.emit)

    def settle(self) -> bool:
        """End the attempt for good; whether it is committed."""
        return self.shared.settle(self.order.name, self.order.attempt)


def _lead(
    part: _Part, may_replace: Callable[[SaveRequest], bool], obsolete: Callable[[str], list[str]]
) -> CheckpointInfo:
    """Rank 0: name the save, write a part of it, and publish it when all have."""
    talk, stage = part.talk, None
    try:
        words = talk.hear_all("hello", part.mine.hello)
        _require_same(words)
        replacing = may_replace(part.order)
        opened = {
            "name": part.order.name,
            "attempt": part.order.attempt,
            "pooled": differing([word["digests"] for word in words]),
            "nested": agreed(words),
        }
        log.info("%s: saving on %d ranks", part.where, talk.world_size)
        recover_once(part.store)
        stage = part.shared.stage_shared(part.order.name, part.order.attempt)
        talk.say("open", opened)
    except BaseException as error:
        if stage is not None:
            stage.abort()
        raise talk.fail("open", error) from error
    try:
        manifest = _commit(part, stage, opened, replacing, obsolete)
    except BaseException as error:  # noqa: BLE001  # raised there, once all ranks know
        return _given_up(part, stage, error)
    talk.say("verdict", {"id": manifest.id})
    log.info("%s: saved on %d ranks", part.where, talk.world_size)
    return info_of(part.store, manifest)


def _require_same(words: list[Word]) -> None:
    first = words[0]["wish"]
    for rank, word in enumerate(words):
        odd = [key for key in _SAME if word["wish"].get(key) != first.get(key)]
        if odd:
            raise OptionInvalid(
                f"rank {rank} saves with {odd[0]}={word['wish'].get(odd[0])!r}, rank 0 with "
                f"{first.get(odd[0])!r}. Every rank must make the same call. Nothing was done."
            )


def _commit(
    part: _Part, stage: Attempt, opened: Word, replacing: bool, obsolete: Callable[[str], list[str]]
) -> Manifest:
    talk = part.talk
    told = None
    if opened["pooled"]:
        mine = part.mine.state.told(opened["pooled"])
        details = talk.hear_all("detail", msgspec.to_builtins(mine))
        signs, _ = settled_signs(part.mine.state, opened["pooled"], talk.world_size)
        known = {sign.name: i for i, sign in enumerate(signs)}
        told = msgspec.to_builtins(pool_parts(details, opened["pooled"], known))
        talk.say("pooled", told)
    pool = part.pool(opened, told)
    table = LayoutTable(pool.signs)
    record = part.write(stage, pool, table)
    votes = talk.hear_all("vote", record)
    require_files(stage, votes, part.where)
    manifest = compose_ranks(part.order, pool, table, votes)
    gone = obsolete(part.order.name) if replacing else []
    stage.publish(encode(manifest), replace=replacing, obsolete=gone)
    return manifest


def _given_up(part: _Part, stage: Attempt, error: BaseException) -> CheckpointInfo:
    """Rank 0: end a save that failed, tell all why, and raise it; or find that it is committed after all."""
    log.error("%s: save failed: %s", part.where, error)
    told = error
    try:
        committed = part.settle()
        if committed and not isinstance(error, DurabilityUnknown):
            info = _info_in_place(part)
            part.talk.say("verdict", {"id": info.id})
            return info
        if isinstance(error, StorageFailure) and error.errno == 2 and not committed:
            told = _overtaken(part)
    except CheckpointException as second:
        told = second
    made = part.talk.fail("verdict", told)
    with suppress(CheckpointException):  # the first error is the one to tell; recovery sweeps what is left
        stage.abort()
    if made is error:
        raise error
    raise made from error


def _overtaken(part: _Part) -> RankLost:
    return RankLost(
        f"{part.where}: the other ranks have given this save up, because rank {part.talk.rank} gave no sign for "
        f"{part.talk.patience:g} s. Nothing of it is visible; load the newest checkpoint.",
        part.where,
        ranks=[part.talk.rank],
    )


def _follow(part: _Part) -> CheckpointInfo:
    """Another rank: write a part, vote, and hear what became of it."""
    talk = part.talk
    talk.say("hello", part.mine.hello)
    opened = talk.hear_leader("open")
    part = part.named(opened)
    own = _vote(part, opened)
    try:
        talk.hear_leader("verdict")
    except RankLost as error:
        if 0 not in error.ranks or part.talk.rank in error.ranks:
            raise
        if not part.settle():
            raise _silent_leader(part, error) from own
        return _info_in_place(part)
    except CheckpointException as error:
        raise error from own
    return _info_in_place(part)


def _vote(part: _Part, opened: Word) -> BaseException | None:
    """Write and vote; return what went wrong, which the others then know."""
    stage = None
    try:
        stage = part.shared.join(part.order.name, part.order.attempt)
        told = None
        if opened["pooled"]:
            part.talk.say("detail", msgspec.to_builtins(part.mine.state.told(opened["pooled"])))
            told = part.talk.hear_leader("pooled", end="verdict")
        pool = part.pool(opened, told)
        record = part.write(stage, pool, LayoutTable(pool.signs))
        stage.flush()  # type: ignore[attr-defined]
        part.talk.say("vote", record)
    except Exception as error:  # noqa: BLE001  # told to rank 0, whose verdict is then raised on every rank
        part.talk.say_error("detail", error)
        part.talk.say_error("vote", error)
        if stage is not None:
            stage.abort()
        return error
    except BaseException as error:
        part.talk.say_error("vote", error)
        raise
    return None


def _silent_leader(part: _Part, error: RankLost) -> RankLost:
    return RankLost(
        f"{part.where}: rank 0 gave no sign for {part.talk.patience:g} s after it began this save: it was killed, it "
        "hangs, or the machine of its store is gone. Nothing of the save is visible; restart the job and load the "
        "newest checkpoint.",
        part.where,
        ranks=error.ranks,
    )


def _info_in_place(part: _Part) -> CheckpointInfo:
    summary = decode_summary(part.store.read_manifest(part.order.name), part.where)
    return info_of(part.store, summary)
