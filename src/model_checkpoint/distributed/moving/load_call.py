"""Load call: a load of all ranks from the first word to the last.

Every rank looks whether it sees the checkpoint, has it validated, and lays it over its objects; only when all of them
have found nothing wrong does the first byte of any change.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from model_checkpoint.distributed.calling.call_limit import CallLimit
from model_checkpoint.distributed.calling.call_options import LoadOptions
from model_checkpoint.distributed.calling.error_details import told_failures
from model_checkpoint.distributed.calling.limited_coordinator import LimitedCoordinator
from model_checkpoint.distributed.errors import ValidationFailed
from model_checkpoint.distributed.moving.call_services import CallServices
from model_checkpoint.distributed.moving.checkpoint_loader import CheckpointLoader
from model_checkpoint.distributed.moving.live_parts import LivePart
from model_checkpoint.distributed.moving.prefixes import require_there
from model_checkpoint.distributed.records.checkpoint_metadata import CheckpointMetadata, describe_manifest
from model_checkpoint.distributed.records.load_result import CheckpointLoadResult
from model_checkpoint.distributed.validating.checkers import told_to
from model_checkpoint.distributed.validating.checkpoint_validator import COMPATIBILITY
from model_checkpoint.distributed.validating.validation_result import ValidationResult
from model_checkpoint.engine.ranks.rank_agreement import agree, agree_at_work, require_same, require_same_options
from model_checkpoint.engine.ranks.words import Word
from model_checkpoint.engine.root.listing import read_any_manifest
from model_checkpoint.errors import (
    CheckpointException,
    CheckpointWarning,
    CorruptedCheckpoint,
    ExceptionType,
    IncompatibleVersion,
    OptionInvalid,
)
from model_checkpoint.events import Emit
from model_checkpoint.manifest import Node
from model_checkpoint.plan import LoadReport
from model_checkpoint.tree import rng_state

_RAISED: dict[ExceptionType, type[CheckpointException]] = {
    ExceptionType.CORRUPTED_CHECKPOINT: CorruptedCheckpoint,
    ExceptionType.INCOMPATIBLE_VERSION: IncompatibleVersion,
}


@dataclass(slots=True)
class LoadCall:
    """One load; ``said`` is what was left out or let through."""

    services: CallServices
    options: LoadOptions
    limit: CallLimit
    said: list[str] = field(default_factory=list)

    def run(self, model: Any, optimizer: Any) -> CheckpointLoadResult:
        """Load together with all other ranks."""
        services, prefix = self.services, self.options.checkpoint_prefix or ""
        with told_failures(
            "load", lambda: services.where(prefix or None), ExceptionType.LOAD_FAILED, services.logger, limit=self.limit
        ):
            ranks = LimitedCoordinator(services.coordinator, self.limit)
            agree(ranks, "options", self._asked, self._same)
            services.say("Loading checkpoint", prefix)
            metadata, parts = self._examined(ranks, prefix, model, optimizer)
            resharded = metadata.world_size != ranks.world_size
            into: dict[str, Any] = {part.name: part.filled for part in parts}
            if self._takes_rng(metadata):
                into["rng"] = rng_state()
            loader = CheckpointLoader(ranks, services.store)
            loader.coordinate_restore(
                prefix,
                into,
                options=self.options,
                resharded=resharded,
                progress=self.limit.hear,
                report=self._note,
            )
            agree(ranks, "hand over", lambda: _handed_over(parts, self.limit))
        services.logger.info("Checkpoint loaded successfully: %s", prefix)
        for text in self.said:
            services.logger.warning("%s: %s", prefix, text)
        states = {part.name: part.state() for part in parts}
        return CheckpointLoadResult(
            metadata=metadata,
            model_state=states["model"],
            optimizer_state=states.get("optimizer"),
            source_world_size=metadata.world_size,
            target_world_size=services.coordinator.world_size,
            was_resharded=resharded,
            rng_restored="rng" in into,
            warnings=tuple(self.said),
        )

    def _asked(self) -> Word:
        self.limit.check()
        if not self.options.checkpoint_prefix:
            raise OptionInvalid(
                "load needs LoadOptions(checkpoint_prefix=...), the name of a checkpoint; list_checkpoints() tells "
                "which there are. Nothing was done.",
                self.services.where(None),
            )
        return {"options": self.options.common}

    def _same(self, words: list[Word]) -> Word:
        require_same_options(words, self.services.store.url)
        return {}

    def _examined(
        self, ranks: LimitedCoordinator, prefix: str, model: Any, optimizer: Any
    ) -> tuple[CheckpointMetadata, Sequence[LivePart]]:
        """What is to be loaded into what, once no rank has anything against it."""
        found: list[tuple[CheckpointMetadata, Sequence[LivePart]]] = []

        def mine(emit: Emit) -> Word:
            self.limit.check()
            store = self.services.store
            require_there(store, prefix)
            with told_to(emit):
                valid = self._validated(prefix)
            manifest = read_any_manifest(store, prefix)
            metadata = describe_manifest(manifest, self.services.where(prefix))
            found.append((metadata, self._parts(metadata, manifest.tree, model, optimizer)))
            return {"root": store.url, "id": manifest.id, "warnings": valid}

        def merge(words: list[Word]) -> Word:
            for key in ("root", "id") if len({word["id"] for word in words}) > 1 else ():
                require_same(words, key, self.services.store.url)
            return {"warnings": list(dict.fromkeys(text for word in words for text in word["warnings"]))}

        for text in agree_at_work(ranks, "examine", mine, merge)["warnings"]:
            self._warn(str(text))
        return found[0]

    def _validated(self, prefix: str) -> list[str]:
        """The warnings of the validator; raise if it does not let the checkpoint pass."""
        if self.options.skip_validation:
            return []
        result = self.services.validator.validate_checkpoint(prefix)
        every = list(result.walk()) if isinstance(result, ValidationResult) else []
        lenient = set() if self.options.strict_mode else _below(every, COMPATIBILITY)
        failed = [one for one in every if one.errors and id(one) not in lenient]
        if failed or (not every and not result.is_valid):
            kind = failed[0].type if failed else ExceptionType.VALIDATION_FAILED
            where = self.services.where(prefix)
            text = f"{where}: Checkpoint validation failed: {result.get_summary()}. Nothing was changed."
            error = _RAISED.get(kind, ValidationFailed)(text, where)
            error.type = kind
            raise error
        passed = [f"{one.name}: {text}" for one in every if id(one) in lenient for text in one.errors]
        told = [f"{one.name}: {text}" for one in every for text in one.warnings]
        return [*passed, *told] or ([result.get_summary()] if not every and result.has_warnings else [])

    def _parts(self, metadata: CheckpointMetadata, tree: Node, model: Any, optimizer: Any) -> Sequence[LivePart]:
        """The live objects, each with the part that fills it."""
        parts = [LivePart.of("model", model, tree)]
        if not self.options.load_optimizer or "optimizer" not in metadata.parts:
            return parts
        if optimizer is None:
            raise OptionInvalid(
                "load was given no optimizer, but the checkpoint has the state of one. Give it one, or pass "
                "LoadOptions(load_optimizer=False). Nothing was changed."
            )
        return [*parts, LivePart.of("optimizer", optimizer, tree, grows=True)]

    def _takes_rng(self, metadata: CheckpointMetadata) -> bool:
        """Whether generators are set; those of another number of ranks would repeat each other, or be lost."""
        known, options = metadata.parts, self.options
        if options.load_optimizer and "optimizer" not in known:
            self._warn("the checkpoint has no optimizer (model only), so the optimizer was left as it is")
        if not options.load_rng_state or "rng" not in known:
            return False
        if metadata.world_size == self.services.coordinator.world_size or options.per_rank is not None:
            return True
        self._warn(
            f"the random generators are those of {metadata.world_size} ranks, now there are "
            f"{self.services.coordinator.world_size}, so they were left as they are; per_rank= says whose to take"
        )
        return False

    def _warn(self, text: str) -> None:
        self.said.append(text)
        warnings.warn(CheckpointWarning(f"{self.services.where(self.options.checkpoint_prefix)}: {text}"), stacklevel=2)

    def _note(self, report: LoadReport) -> None:
        """Keep what the engine left out; it has warned of it by itself."""
        if not report.complete:
            self.said.append(report.tell())


def _below(every: Sequence[ValidationResult], name: str) -> set[int]:
    """Which results stand under one of that name."""
    return {id(one) for result in every if result.name == name for one in result.walk()}


def _handed_over(parts: Sequence[LivePart], limit: CallLimit) -> Word:
    with limit.changing(lambda: ([part.name for part in parts], [])):
        for part in parts:
            part.hand_over()
    return {}
