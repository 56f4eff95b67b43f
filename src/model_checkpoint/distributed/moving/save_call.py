"""Save call: a save of all ranks from the first word to the last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from model_checkpoint.distributed.calling.call_limit import CallLimit
from model_checkpoint.distributed.calling.call_options import SaveOptions
from model_checkpoint.distributed.calling.error_details import told_failures
from model_checkpoint.distributed.calling.limited_coordinator import LimitedCoordinator
from model_checkpoint.distributed.moving.call_services import CallServices
from model_checkpoint.distributed.moving.checkpoint_coordinator import CheckpointCoordinator
from model_checkpoint.distributed.moving.live_parts import state_to_save
from model_checkpoint.distributed.moving.prefixes import default_prefix
from model_checkpoint.distributed.storing.limited_calls import limited
from model_checkpoint.engine.ranks.rank_agreement import agree, require_same_options
from model_checkpoint.engine.ranks.words import Word
from model_checkpoint.errors import CheckpointException, ExceptionType, OptionInvalid
from model_checkpoint.tree import rng_state

Parts = Mapping[str, Any]


def parts_to_save(model: Any, optimizer: Any, options: SaveOptions) -> Callable[[], Parts]:
    """What a save of model and optimizer consists of, asked for when all ranks are there."""

    def take() -> Parts:
        parts: dict[str, Any] = {"model": state_to_save(model, "model")}
        if options.include_optimizer:
            if optimizer is None:
                raise OptionInvalid(
                    "save was given no optimizer. Give it one, pass SaveOptions(include_optimizer=False), or call "
                    "save_model_only. Nothing was done."
                )
            parts["optimizer"] = state_to_save(optimizer, "optimizer")
        if options.include_rng_state:
            parts["rng"] = rng_state()
        return parts

    return take


@dataclass(frozen=True, slots=True)
class SaveCall:
    """One save."""

    services: CallServices
    options: SaveOptions
    limit: CallLimit
    agreed: list[str] = field(default_factory=list)  # the prefix, once there is one

    @property
    def _prefix(self) -> str | None:
        return self.agreed[0] if self.agreed else self.options.checkpoint_prefix

    def landed(self) -> str:
        """The prefix of a save that hangs, but is committed."""
        self.services.logger.warning("Checkpoint saved, but its storage hangs: %s", self._prefix)
        return self.agreed[0]

    def run(self, take: Callable[[], Parts]) -> str:
        """Save together with all other ranks; return the prefix."""
        return self.begin(take, background=False)()

    def begin(self, take: Callable[[], Parts], *, background: bool = True) -> Callable[[], str]:
        """Agree on the prefix and, in the background, copy the state; return what waits for the end of the save."""
        with self._telling():
            ranks = LimitedCoordinator(self.services.coordinator, self.limit)
            prefix = self._agreed_prefix(ranks)
            self.agreed.append(prefix)
            self.services.say("Saving checkpoint", prefix)
            saver = CheckpointCoordinator(ranks, limited(self.services.store, self.limit, alone=ranks.world_size == 1))
            job = saver.begin_save(prefix, take, options=self.options, progress=self.limit.hear) if background else None

        def finish() -> str:
            with self._telling():
                try:
                    if job is None:
                        saver.coordinate_save(prefix, take, options=self.options, progress=self.limit.hear)
                    else:
                        job.result()
                except BaseException:
                    self._roll_back(prefix)
                    raise
            self.services.logger.info("Checkpoint saved successfully: %s", prefix)
            return prefix

        return finish

    def _telling(self) -> AbstractContextManager[None]:
        services, limit = self.services, self.limit
        return told_failures(
            "save", lambda: services.where(self._prefix), ExceptionType.SAVE_FAILED, services.logger, limit=limit
        )

    def _agreed_prefix(self, ranks: LimitedCoordinator) -> str:
        """The prefix that all ranks were given, or the one rank 0 makes."""

        def mine() -> Word:
            self.limit.check()
            return {"options": self.options.common}

        def choose(words: list[Word]) -> Word:
            require_same_options(words, self.services.store.url)
            return {"prefix": self.options.checkpoint_prefix or default_prefix(self.services.store)}

        return str(agree(ranks, "prefix", mine, choose)["prefix"])

    def _roll_back(self, prefix: str) -> None:
        """Rank 0: have the leavings cleared away, unless there is a whole checkpoint of that name."""
        services = self.services
        if services.coordinator.rank != 0:
            return
        try:
            if not services.store.has(prefix):
                services.fault_handler.rollback(prefix)
        except CheckpointException as error:
            services.logger.warning("Leavings of %s stay until the next recovery: %s", prefix, error)
