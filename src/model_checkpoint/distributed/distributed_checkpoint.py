"""Distributed checkpoint: model and optimizer of many ranks, saved, loaded, listed and deleted by name.

Every rank makes the same calls in the same order; each call that changes something is made by all, and either all of
them have done it or all raise the same error. To list is of one rank.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from model_checkpoint.coordination import Coordinator
from model_checkpoint.distributed.calling.bounded_call import within
from model_checkpoint.distributed.calling.call_limit import CallLimit
from model_checkpoint.distributed.calling.call_options import Duration, LoadOptions, SaveOptions, as_seconds
from model_checkpoint.distributed.calling.error_details import CallLogger, told_failures
from model_checkpoint.distributed.calling.limited_coordinator import LimitedCoordinator
from model_checkpoint.distributed.calling.pending_call import Attend, PendingCall, Turns
from model_checkpoint.distributed.moving.call_services import CallServices
from model_checkpoint.distributed.moving.delete_call import DeleteCall
from model_checkpoint.distributed.moving.load_call import LoadCall
from model_checkpoint.distributed.moving.save_call import SaveCall, parts_to_save
from model_checkpoint.distributed.records.load_result import CheckpointLoadResult
from model_checkpoint.distributed.retrying.fault_tolerance import FaultToleranceHandler
from model_checkpoint.distributed.retrying.retried_calls import retried
from model_checkpoint.distributed.storing.storage_contract import FaultHandler
from model_checkpoint.distributed.storing.storage_factory import StorageFactory
from model_checkpoint.distributed.storing.storage_roots import Storage, store_of
from model_checkpoint.distributed.validating.checkpoint_validator import (
    CheckpointValidator,
    CheckpointValidatorProtocol,
)
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.root.listing import list_checkpoints
from model_checkpoint.errors import CheckpointException, ExceptionType, OptionInvalid

T = TypeVar("T")

DEFAULT_TIMEOUT = timedelta(minutes=10)

_AFTERMATH = {
    "the save": "Nothing of it is visible, and it publishes nothing any more.",
    "the load": "Nothing was changed, and it changes nothing any more.",
    "the deletion": "It deletes nothing any more.",
}
_DOUBT = {
    "the save": "The checkpoint is in place, or may be: its storage does not tell, nor does another rank. When the "
    "storage answers again look for it (`mckpt ls`), and run `mckpt verify` on it before relying on it.",
    "the load": "",
    "the deletion": "The checkpoint is deleted, or may be: its storage does not tell, nor does another rank. When the "
    "storage answers again look for it (`mckpt ls`), and delete it again if it is still there.",
}


class DistributedCheckpoint:
    """Checkpoints of the ranks of one program.

    Args:
        coordinator: What lets the ranks talk: ``TorchCoordinator()``, ``MpiCoordinator()``, ``JaxCoordinator()``,
            ``LocalCoordinator()`` for a single process, or anything with the five members of ``Coordinator``.
        storage: A folder, a URL, a store, or a :class:`CheckpointStorage` of one's own; default ``./checkpoints``.
        fault_handler: What is done when the storage fails; default: try again for a while.
        validator: What a checkpoint must pass before it is loaded; default: sizes, digests, version, structure.
        logger: Who hears of it; default: ``model_checkpoint.distributed``.
        default_timeout: Seconds, or a timedelta, for every call that is given none.

    Example:
        >>> import numpy as np
        >>> from model_checkpoint.distributed import DistributedCheckpoint, LoadOptions, LocalCoordinator, SaveOptions
        >>> checkpoint = DistributedCheckpoint(LocalCoordinator(), "memory://doc-distributed")
        >>> model, optimizer = {"w": np.ones(3)}, {"lr": 0.1}
        >>> checkpoint.save(model, optimizer, SaveOptions(checkpoint_prefix="epoch_1"))
        'epoch_1'
        >>> model["w"][:] = 0
        >>> checkpoint.load(model, optimizer, LoadOptions(checkpoint_prefix="epoch_1")).source_world_size
        1
        >>> model["w"].tolist()
        [1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        coordinator: Coordinator,
        storage: Storage | None = None,
        fault_handler: FaultHandler | None = None,
        validator: CheckpointValidatorProtocol | None = None,
        logger: CallLogger | None = None,
        *,
        default_timeout: Duration = DEFAULT_TIMEOUT,
    ) -> None:
        if not isinstance(coordinator, Coordinator):
            raise OptionInvalid(
                f"coordinator={coordinator!r}: expected something with rank, world_size, patience, put and collect, "
                "such as TorchCoordinator() or, in a single process, LocalCoordinator(). Nothing was done."
            )
        self._coordinator, self._default_timeout = coordinator, as_seconds(default_timeout, "default_timeout")
        self._storage: Storage = StorageFactory.create() if storage is None else storage
        handler = FaultToleranceHandler(self._storage) if fault_handler is None else fault_handler
        store = retried(store_of(self._storage), handler)
        self._services = CallServices(
            coordinator=coordinator,
            store=store,
            fault_handler=handler,
            validator=CheckpointValidator(store, coordinator=coordinator) if validator is None else validator,
            logger=logging.getLogger("model_checkpoint.distributed") if logger is None else logger,
        )
        self._attend: Attend = getattr(coordinator, "attend", None)
        self._turns = Turns(self._attend)

    def get_coordinator(self) -> Coordinator:
        """What lets the ranks talk."""
        return self._coordinator

    def get_storage(self) -> Storage:
        """Where checkpoints are kept, as it was given or made."""
        return self._storage

    def save(
        self,
        model: Any,
        optimizer: Any,
        options: SaveOptions | None = None,
        *,
        cancel: threading.Event | None = None,
    ) -> str:
        """Save model, optimizer and the random generators of each rank; return the prefix.

        Raises:
            StepExists: there is a checkpoint of that prefix; nothing was written.
            CallTimeout: it took too long; nothing of it is visible, and nothing will be. ``ranks`` says who was late.
            RankLost: a rank gave no sign; nothing of it is visible.
            DurabilityUnknown: it is in place, or may be, but the storage no longer answers.
        """
        options = SaveOptions() if options is None else options
        call, turn = self._save_call(options, cancel), self._turns.ask()

        def work() -> str:
            with self._turns.have(turn):
                return call.run(parts_to_save(model, optimizer, options))

        return self._within(call.limit, work, attend=self._attend, landed=call.landed)

    def save_async(self, model: Any, optimizer: Any, options: SaveOptions | None = None) -> PendingCall[str]:
        """Copy model and optimizer, return, and save meanwhile; both may change as soon as this returns."""
        options = SaveOptions() if options is None else options
        return self._save_in_background(options, lambda chosen: parts_to_save(model, optimizer, chosen))

    def save_model_only(
        self, model: Any, options: SaveOptions | None = None, *, cancel: threading.Event | None = None
    ) -> str:
        """Save the model alone: no optimizer, no random generators, whatever the options say of those."""
        options = _model_only(options)
        return self.save(model, None, options, cancel=cancel)

    def save_model_only_async(self, model: Any, options: SaveOptions | None = None) -> PendingCall[str]:
        """Copy the model, return, and save it meanwhile."""
        return self.save_async(model, None, _model_only(options))

    def load(
        self,
        model: Any,
        optimizer: Any,
        options: LoadOptions | None = None,
        *,
        cancel: threading.Event | None = None,
    ) -> CheckpointLoadResult:
        """Fill model and optimizer from a checkpoint, whatever number of ranks saved it.

        Raises:
            ValueError: no prefix was given.
            WrongReference: there is no checkpoint of that prefix.
            CorruptedCheckpoint: what is stored is not what was saved; nothing was changed.
            StructureMismatch: checkpoint and live objects differ; nothing was changed.
            CallTimeout: it took too long; nothing was changed, and nothing will be.
            PartlyLoaded: it failed, or took too long, after the first change; what was replaced is named.
        """
        return self._load(model, optimizer, options, cancel, self._turns.ask(), attend=self._attend)

    def load_async(
        self, model: Any, optimizer: Any, options: LoadOptions | None = None
    ) -> PendingCall[CheckpointLoadResult]:
        """Load in the background; leave model and optimizer alone until it is over."""
        turn, cancel = self._turns.ask(), threading.Event()
        return PendingCall("load", lambda: self._load(model, optimizer, options, cancel, turn), cancel, self._attend)

    def list_checkpoints(self, *, cancel: threading.Event | None = None) -> list[CheckpointInfo]:
        """The committed checkpoints, newest first; none if nothing was saved yet. Any rank may call it alone."""
        limit = CallLimit("listing", seconds=self._default_timeout, cancel=cancel)
        services = self._services
        with told_failures("list", lambda: services.where(None), ExceptionType.STORAGE_ERROR, services.logger):
            limit.check()
            return services.fault_handler.execute_with_timeout(self._listed, limit.seconds)

    def list_checkpoints_async(self) -> PendingCall[list[CheckpointInfo]]:
        """List in the background."""
        cancel = threading.Event()
        return PendingCall("list", lambda: self.list_checkpoints(cancel=cancel), cancel)

    def delete_checkpoint(self, checkpoint_prefix: str, *, cancel: threading.Event | None = None) -> None:
        """Move a checkpoint to the trash: rank 0 does, and every rank learns what came of it.

        Raises:
            WrongReference: there is no checkpoint of that prefix.
            CallTimeout: it took too long; the checkpoint is there, and this call deletes it no more.
            RankLost: a rank gave no sign; the checkpoint is there, also if that rank goes on later.
            DurabilityUnknown: it is deleted, or may be, but the storage no longer answers.
        """
        self._delete(checkpoint_prefix, cancel, self._turns.ask(), attend=self._attend)

    def delete_checkpoint_async(self, checkpoint_prefix: str) -> PendingCall[None]:
        """Delete in the background."""
        turn, cancel = self._turns.ask(), threading.Event()
        return PendingCall("delete", lambda: self._delete(checkpoint_prefix, cancel, turn), cancel, self._attend)

    def _limit(self, what: str, timeout: Duration | None, cancel: threading.Event | None, prefix: object) -> CallLimit:
        seconds = self._default_timeout if timeout is None else as_seconds(timeout, "timeout")
        where = self._services.where(prefix) if isinstance(prefix, str) else ""
        return CallLimit(
            what,
            seconds=seconds,
            cancel=cancel,
            where=where,
            aftermath=_AFTERMATH[what],
            doubt=_DOUBT[what],
            world_size=self._coordinator.world_size,
        )

    def _within(
        self,
        limit: CallLimit,
        work: Callable[[], T],
        *,
        attend: Attend = None,
        late: Callable[[T], object] | None = None,
        landed: Callable[[], T] | None = None,
    ) -> T:
        """Wait for ``work`` no longer than it may take, and tell of one that hangs as of any other failure."""

        def tell(error: CheckpointException) -> None:
            error.checkpoint_path = error.checkpoint_path or self._services.where(None)
            self._services.logger.error("%s: %s", error.checkpoint_path, error)

        ranks = LimitedCoordinator(self._coordinator, limit)
        return within(
            limit,
            work,
            rank=ranks.rank,
            world_size=ranks.world_size,
            telling=ranks.telling,
            tell=tell,
            attend=attend,
            late=late,
            landed=landed,
        )

    def _save_call(self, options: SaveOptions, cancel: threading.Event | None) -> SaveCall:
        return SaveCall(
            self._services, options, self._limit("the save", options.timeout, cancel, options.checkpoint_prefix)
        )

    def _save_in_background(self, options: SaveOptions, parts: Callable[[SaveOptions], Any]) -> PendingCall[str]:
        """Begin before this returns, so that the state may change; the turn is over when the save is."""
        cancel = threading.Event()
        call, turn = self._save_call(options, cancel), self._turns.have(self._turns.ask())

        def begin() -> Callable[[], str]:
            turn.__enter__()
            try:
                return call.begin(parts(options))
            except BaseException:
                turn.__exit__(None, None, None)
                raise

        def end(finish: Callable[[], str]) -> str:
            try:
                return finish()
            finally:
                turn.__exit__(None, None, None)

        finish = self._within(call.limit, begin, attend=self._attend, late=end)
        return PendingCall(
            "save",
            lambda: self._within(call.limit, lambda: end(finish), landed=call.landed),
            cancel,
            self._attend,
        )

    def _load(
        self,
        model: Any,
        optimizer: Any,
        options: LoadOptions | None,
        cancel: threading.Event | None,
        turn: int,
        *,
        attend: Attend = None,
    ) -> CheckpointLoadResult:
        options = LoadOptions() if options is None else options
        limit = self._limit("the load", options.timeout, cancel, options.checkpoint_prefix)

        def work() -> CheckpointLoadResult:
            with self._turns.have(turn):
                return LoadCall(self._services, options, limit).run(model, optimizer)

        return self._within(limit, work, attend=attend)

    def _listed(self) -> list[CheckpointInfo]:
        store = self._services.store
        return list_checkpoints(store) if store.exists() else []

    def _delete(self, prefix: str, cancel: threading.Event | None, turn: int, attend: Attend = None) -> None:
        call = DeleteCall(self._services, prefix, self._limit("the deletion", None, cancel, prefix))

        def work() -> None:
            with self._turns.have(turn):
                call.run()

        self._within(call.limit, work, attend=attend, landed=call.landed)


def _model_only(options: SaveOptions | None) -> SaveOptions:
    options = SaveOptions() if options is None else options
    return dataclasses.replace(options, include_optimizer=False, include_rng_state=False)
