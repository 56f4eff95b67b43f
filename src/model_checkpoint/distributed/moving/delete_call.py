"""Delete call: a deletion of all ranks from the first word to the last.

First all ranks learn the token under which it will be decided, then each votes, and rank 0 deletes. Whoever has voted
and loses patience settles it: the checkpoint is gone by then, or this deletion never takes it away, also if rank 0 was
stopped in its very last step and goes on later.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from model_checkpoint.distributed.calling.call_limit import CallLimit
from model_checkpoint.distributed.calling.error_details import told_failures
from model_checkpoint.distributed.calling.limited_coordinator import LimitedCoordinator
from model_checkpoint.distributed.moving.call_services import CallServices
from model_checkpoint.distributed.moving.prefixes import require_there
from model_checkpoint.distributed.storing.limited_calls import deleting
from model_checkpoint.engine.ranks.rank_agreement import Deed, agree, require_same
from model_checkpoint.engine.ranks.words import Word
from model_checkpoint.engine.root.delete import delete, delete_planned
from model_checkpoint.errors import (
    DurabilityUnknown,
    ExceptionType,
    OptionInvalid,
    RankLost,
    StorageFailure,
    WrongReference,
)
from model_checkpoint.storage.contract.shared import SharedTrash
from model_checkpoint.storage.contract.store import FolderStore


@dataclass(slots=True)
class DeleteCall:
    """One deletion."""

    services: CallServices
    prefix: str
    limit: CallLimit
    token: str = ""  # under which it is decided; of one process alone, only where that costs nothing

    def run(self) -> None:
        """Delete together with all other ranks."""
        services = self.services
        with told_failures(
            "delete",
            lambda: services.where(str(self.prefix)),
            ExceptionType.STORAGE_ERROR,
            services.logger,
            limit=self.limit,
        ):
            services.logger.info("Deleting checkpoint: %s", self.prefix)
            ranks = LimitedCoordinator(services.coordinator, self.limit)
            deed = Deed(vote=self._vote, act=self._remove, find_out=self._is_gone)
            agree(ranks, "delete", self._mine, self._plan, deed=deed)
            services.logger.info("Checkpoint deleted: %s", self.prefix)

    def landed(self) -> None:
        """A deletion hangs, but has taken place."""
        self.services.logger.warning("Checkpoint deleted, but its storage hangs: %s", self.prefix)

    def _mine(self) -> Word:
        self.limit.check()
        if not isinstance(self.prefix, str) or not self.prefix.strip():
            raise OptionInvalid(f"checkpoint_prefix={self.prefix!r}: expected the name of a checkpoint.")
        return {"checkpoint_prefix": self.prefix}

    def _plan(self, words: list[Word]) -> Word:
        """Rank 0: the token, if all mean the same checkpoint, and it is there."""
        store = self.services.store
        require_same(words, "checkpoint_prefix", store.url)
        try:
            if not store.has(self.prefix):
                require_there(store, self.prefix)
        except WrongReference as error:
            error.type = ExceptionType.STORAGE_ERROR
            raise
        together = self.services.coordinator.world_size > 1 or isinstance(store, FolderStore)
        return {"token": store.plan_discard(self.prefix) if together and isinstance(store, SharedTrash) else ""}

    def _vote(self, plan: Word) -> Word:
        self.token = str(plan["token"])
        self.limit.deciding(self._is_gone)
        return {}

    def _remove(self) -> None:
        """Rank 0: delete it, unless the others have given that up."""
        self.limit.check()  # whoever asked may have gone meanwhile
        store = deleting(self.services.store, self.limit, alone=not self.token)
        try:
            if isinstance(store, SharedTrash) and self.token:
                delete_planned(store, self.token)
            else:
                delete(store, name=self.prefix)
        except DurabilityUnknown:
            raise
        except StorageFailure as error:
            if self.services.coordinator.world_size == 1 or not self._is_gone():
                raise self._as_others_tell(error) from error

    def _as_others_tell(self, error: StorageFailure) -> Exception:
        """What to raise of a deletion that failed; of one that others have given up, why they have."""
        if error.errno != errno.ENOENT:
            return error
        where = self.services.where(self.prefix)
        return RankLost(
            f"{where}: the other ranks have given this deletion up, because rank 0 gave no sign for too long. The "
            "checkpoint is kept; delete it again.",
            where,
            ranks=[0],
        )

    def _is_gone(self) -> bool:
        """End the deletion for good; whether it has taken place. Without a token nobody can do more than look."""
        store = self.services.store
        if isinstance(store, SharedTrash) and self.token:
            return store.settle_discard(self.token)
        return not store.has(self.prefix)
