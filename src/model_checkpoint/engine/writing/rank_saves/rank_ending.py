"""Rank ending: a rank writes its part and votes, rank 0 publishes it, and every rank learns what became of it."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from model_checkpoint.engine.common.info import CheckpointInfo, info_of, path_of
from model_checkpoint.engine.jobs.followups import FollowUp
from model_checkpoint.engine.ranks.conversation import Conversation, as_told
from model_checkpoint.engine.ranks.error_records import retold, told
from model_checkpoint.engine.ranks.words import Word, encode_word
from model_checkpoint.engine.repairing.protect import protect
from model_checkpoint.engine.writing import bandwidth
from model_checkpoint.engine.writing.commit_time import commit_time
from model_checkpoint.engine.writing.rank_saves.rank_part import PartRecord, compose_ranks, require_files, write_part
from model_checkpoint.engine.writing.rank_saves.rank_plan import RankPlan
from model_checkpoint.engine.writing.rank_saves.unsharded import unshard
from model_checkpoint.engine.writing.request import SaveRequest
from model_checkpoint.engine.writing.save_plan import SavePlan
from model_checkpoint.engine.writing.slabs import FileJob
from model_checkpoint.errors import CheckpointException, DurabilityUnknown, LimitExceeded, RankLost, StorageFailure
from model_checkpoint.events import Emit
from model_checkpoint.manifest import FileCopy, Head, Manifest, Node, Summary, decode_summary, encode
from model_checkpoint.manifest.record import Label
from model_checkpoint.options import CheckpointFormat
from model_checkpoint.storage.contract.shared import JointAttempt, SharedStore
from model_checkpoint.storage.contract.store import Store

log = logging.getLogger("model_checkpoint.save")

Move = Callable[[list[FileJob]], None]
# What a medium says that cannot take the bytes; a stage that others took away is not there.
_OF_THE_MEDIUM = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class RankEnding:
    """The end of one save as one rank sees it; ``stage`` is the attempt that all ranks write to."""

    def __init__(
        self, talk: Conversation, store: Store, shared: SharedStore, order: SaveRequest, stage: JointAttempt | None
    ) -> None:
        self._talk, self._store, self._shared = talk, store, shared
        self.order, self.stage = order, stage
        self.replace: Callable[[], list[str]] | None = None  # the files of what is to be replaced, if something is
        self._planned: SavePlan | None = None
        self._plan: RankPlan | None = None
        self._tree: Callable[[], Node] = lambda: None

    @property
    def where(self) -> str:
        """Where the checkpoint will lie."""
        return path_of(self._store, self.order.name)

    def prepare(self, planned: SavePlan, plan: RankPlan, tree: Callable[[], Node]) -> None:
        """Take what was planned; rank 0 needs the tree over all arrays, too."""
        self._planned, self._plan = planned, plan
        if self._talk.leads:
            made = tree()
            self._tree = lambda: made

    def finish(self, move: Move) -> tuple[CheckpointInfo, FollowUp | None]:
        """Write, vote, and hear what became of it."""
        return self._lead(move) if self._talk.leads else (self._follow(move), None)

    def failed_early(self, error: BaseException) -> BaseException:
        """Tell the others what went wrong before anything was written; return what every rank raises."""
        try:
            self.abandon(error)
        except BaseException as raised:  # noqa: BLE001  # the caller raises it
            return raised
        return error

    def abandon(self, error: BaseException) -> None:
        """Tell the others that this rank will not write its part; raise what all of them raise."""
        if self._talk.leads:
            self._given_up(error)
            return
        self._excuse(error)
        if isinstance(error, Exception):
            self._verdict(error)

    def _part(self, move: Move) -> PartRecord:
        if self._planned is None or self._plan is None:
            raise AssertionError("a save is planned before it is written")
        started = time.monotonic()
        record = write_part(self._joint, self._planned, self._plan.shares, move)
        written = sum(job.size for job in self._planned.writing)
        bandwidth.note(self._store.url, written, time.monotonic() - started)
        return record

    @property
    def _joint(self) -> JointAttempt:
        if self.stage is None:
            raise AssertionError("an attempt is joined before it is written to")
        return self.stage

    # --- rank 0 ------------------------------------------------------------------------------------------------------

    def _lead(self, move: Move) -> tuple[CheckpointInfo, FollowUp | None]:
        try:
            manifest = self._commit(move)
        except BaseException as error:  # noqa: BLE001  # raised there, once all ranks know
            return self._given_up(error), None
        self._say_saved(manifest)
        log.info("%s: saved on %d ranks", self.where, self._talk.world_size)
        return info_of(self._store, manifest), protect(self._store, manifest, self.order.mirror)

    def _commit(self, move: Move) -> Manifest:
        record = self._part(move)
        votes = self._talk.hear_all("vote", record)
        require_files(self._joint, votes, self.where)
        manifest = self._composed(votes)
        gone = self.replace() if self.replace is not None else []
        self._talk.deciding(self._settle)
        self._joint.publish(encode(manifest), replace=self.replace is not None, obsolete=gone)
        return manifest

    def _composed(self, votes: Sequence[PartRecord]) -> Manifest:
        if self._plan is None:
            raise AssertionError("a save is planned before it is written")
        created = commit_time(self._store, self.order)
        manifest = compose_ranks(self.order, self._tree(), self._plan, votes, created=created)
        if self.order.layout is CheckpointFormat.MULTI_SHARD:
            return manifest
        emit: Emit = self._talk.moved
        return unshard(self._store, self._joint, self.order, manifest, self._plan.signs, emit=emit)

    def _given_up(self, error: BaseException) -> CheckpointInfo:
        """End a save that failed, tell all why, and raise it; or find that it is committed after all."""
        log.error("%s: save failed: %s", self.where, error)
        shown, committed = error, False
        try:
            committed = self._settle()
            if committed and not isinstance(error, DurabilityUnknown):
                summary = self._summary_in_place()
                self._say_saved(summary)
                if not isinstance(error, Exception):
                    raise error  # an interrupt is the program's to hear, whatever came of the save
                return info_of(self._store, summary)
        except CheckpointException as second:
            shown = second
        over = self._given_up_by_others(error)
        if over is not None and "error" not in over:
            return self._info(over)  # they found it in place, and have flushed it
        if not committed:
            shown = self._as_others_tell(shown, over)
        made = self._talk.fail("verdict", shown)
        if self.stage is not None:
            with suppress(CheckpointException):  # the first error is the one to tell; recovery sweeps what is left
                self.stage.abort()
        if made is error:
            raise error
        raise made from error

    def _given_up_by_others(self, error: BaseException) -> Word | None:
        """What the others say came of the save, if they did not hear of rank 0 for too long."""
        if not isinstance(error, Exception):
            return None
        taken = isinstance(error, StorageFailure) and error.errno not in _OF_THE_MEDIUM
        return self._talk.given_up(soon=taken)  # whoever took the stage away says why

    def _as_others_tell(self, error: BaseException, over: Word | None) -> BaseException:
        """The error of a save that is not committed, as those tell it who have given this rank up."""
        if over is not None:
            return retold(over["error"], self._talk.world_size, named=False)
        if not isinstance(error, StorageFailure) or (error.errno != errno.ENOENT and not self._talk.was_away):
            return error
        return RankLost(
            f"{self.where}: the other ranks have given this save up, because rank {self._talk.rank} gave no sign for "
            f"{self._talk.patience:g} s. Nothing of it is visible; load the newest checkpoint.",
            self.where,
            ranks=[self._talk.rank],
        )

    def _say_saved(self, saved: Summary) -> None:
        """Tell all of the checkpoint, so that nobody need read what is on the medium to know that it is there."""
        self._talk.say("verdict", _saved_word(saved))

    # --- another rank ------------------------------------------------------------------------------------------------

    def _follow(self, move: Move) -> CheckpointInfo:
        own = None
        try:
            record = self._part(move)
            self._joint.flush()
            self._talk.deciding(self._settle)
            self._talk.say("vote", record)
        except Exception as error:  # noqa: BLE001  # told to rank 0, whose verdict is then raised on every rank
            self._excuse(error)
            own = error
        except BaseException as error:
            self._talk.say_error("vote", error)
            raise
        return self._verdict(own)

    def _excuse(self, error: BaseException) -> None:
        self._talk.say_error("vote", error)
        if self.stage is not None:
            self.stage.abort()

    def _verdict(self, own: Exception | None) -> CheckpointInfo:
        """What rank 0 says became of the save, or what the root says if rank 0 does not."""
        talk = self._talk
        try:
            word = talk.hear_leader("verdict")
        except CheckpointException as error:
            if talk.gone is None or talk.rank in talk.gone.ranks:
                raise error from own
            word = self._found_out(talk.gone)
            talk.end_for_leader(word)
            if "error" in word:
                raise self._silent_leader(talk.gone) from own
        return self._info(word)

    def _found_out(self, error: RankLost) -> Word:
        """What rank 0 would say, had it not been given up."""
        if self._settle():
            return _saved_word(self._summary_in_place())
        return {"error": told(as_told(self._silent_leader(error)), 0), "common": True}

    def _info(self, word: Word) -> CheckpointInfo:
        if "head" in word:
            return info_of(self._store, msgspec.convert(word["head"], Head))
        return info_of(self._store, self._summary_in_place())

    def _silent_leader(self, error: RankLost) -> RankLost:
        if hasattr(error, "told_as"):
            return error
        return RankLost(
            f"{self.where}: rank 0 gave no sign for {self._talk.patience:g} s after it began this save: it was killed, "
            "it hangs, or the machine of its store is gone. Nothing of the save is visible; restart the job and load "
            "the newest checkpoint.",
            self.where,
            ranks=error.ranks,
        )

    # --- both --------------------------------------------------------------------------------------------------------

    def _settle(self) -> bool:
        """End the attempt for good; whether it is committed."""
        return self._shared.settle(self.order.name, self.order.attempt)

    def _summary_in_place(self) -> Summary:
        """What the manifest in place says of the checkpoint, which is committed whether it can be read here or not."""
        try:
            return decode_summary(self._store.read_manifest(self.order.name), self.where)
        except StorageFailure as error:
            raise DurabilityUnknown(
                f"{self.where}: the checkpoint is in place, but its manifest could not be read on rank "
                f"{self._talk.rank}: {str(error).rstrip('.')}. Run `mckpt verify` on it before relying on it.",
                self.where,
                code=error.errno,
                inner_exception=error,
            ) from error


def _saved_word(saved: Summary) -> Word:
    """What all ranks are told of a checkpoint in place; metadata of the user's that are too long are left out."""
    size = sum(copy.size for copy in saved.copies)
    label = {field: getattr(saved, field) for field in Label.__struct_fields__}
    word: Word = {"head": msgspec.to_builtins(Head(**label, copies=(FileCopy(size, size, ""),)))}
    try:
        encode_word(word)
    except LimitExceeded:
        return {"id": saved.id}
    return word
