"""Checkpoint validator: all checkers over one checkpoint; never raises, but tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from model_checkpoint.coordination import Coordinator
from model_checkpoint.distributed.records.checkpoint_metadata import CheckpointMetadata, describe_manifest
from model_checkpoint.distributed.storing.storage_roots import Storage, store_of
from model_checkpoint.distributed.validating.checkers import (
    ChecksumChecker,
    CompatibilityChecker,
    IntegrityChecker,
    SchemaChecker,
    ShardFile,
    SizeChecker,
    VersionChecker,
)
from model_checkpoint.distributed.validating.validation_result import ValidationResult
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.root.listing import read_any_manifest
from model_checkpoint.errors import CheckpointException, ExceptionType
from model_checkpoint.manifest import Manifest

COMPATIBILITY = "compatibility"


@runtime_checkable
class CheckpointValidatorProtocol(Protocol):
    """Says whether a checkpoint may be loaded; asked on every rank."""

    def validate_checkpoint(self, path: str) -> ValidationResult:
        """What is wrong with the checkpoint of that prefix."""
        ...


class CheckpointValidator:
    """Asks every checker; None means the usual ones, an empty list none.

    With a ``coordinator`` each rank looks at its share of the files, so that all of them together read each once.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-validator", {"model": {"w": b"x"}}, name="first")
        >>> CheckpointValidator("memory://doc-validator").validate_checkpoint("first").is_valid
        True
        >>> CheckpointValidator("memory://doc-validator").validate_checkpoint("second").is_valid
        False
    """

    def __init__(
        self,
        storage: Storage,
        integrity_checkers: Sequence[IntegrityChecker] | None = None,
        compatibility_checkers: Sequence[CompatibilityChecker] | None = None,
        *,
        coordinator: Coordinator | None = None,
    ) -> None:
        self._store = store_of(storage)
        usual: list[IntegrityChecker] = [SizeChecker(), ChecksumChecker()]
        self._integrity = usual if integrity_checkers is None else list(integrity_checkers)
        wide: list[CompatibilityChecker] = [VersionChecker(), SchemaChecker()]
        self._compatibility = wide if compatibility_checkers is None else list(compatibility_checkers)
        self._rank, self._world_size = (0, 1) if coordinator is None else (coordinator.rank, coordinator.world_size)

    def validate_checkpoint(self, path: str) -> ValidationResult:
        """What is wrong with the checkpoint of that prefix."""
        result = ValidationResult(path)
        try:
            manifest = read_any_manifest(self._store, path)
            metadata = describe_manifest(manifest, path_of(self._store, path))
        except CheckpointException as error:
            result.type = ExceptionType.LOAD_FAILED if isinstance(error, FileNotFoundError) else error.type
            result.add_error(str(error))
            return result
        result.add_sub_results(self.validate_metadata(metadata), self._validate_files(manifest, metadata))
        return result

    def validate_metadata(self, metadata: CheckpointMetadata) -> ValidationResult:
        """What keeps this program from using a checkpoint of which this is known."""
        result = ValidationResult(COMPATIBILITY)
        for checker in self._compatibility:
            result.add_sub_results(_asked(checker, checker.check_compatibility, metadata))
        return result

    def validate_shards(self, metadata: CheckpointMetadata, prefix: str) -> ValidationResult:
        """What is wrong with the files of a checkpoint; with those that fall to this rank, if there are several."""
        try:
            return self._validate_files(read_any_manifest(self._store, prefix), metadata)
        except CheckpointException as error:
            return ValidationResult("integrity", error.type, errors=[str(error)])

    def _validate_files(self, manifest: Manifest, metadata: CheckpointMetadata) -> ValidationResult:
        result = ValidationResult("integrity", ExceptionType.CORRUPTED_CHECKPOINT)
        for shard in metadata.shards[self._rank :: self._world_size]:
            data = ShardFile(self._store, manifest, shard.file_path)
            for checker in self._integrity:
                result.add_sub_results(_asked(checker, checker.check_integrity, data, shard))
        return result


def _asked(checker: Any, ask: Callable[..., ValidationResult], *about: object) -> ValidationResult:
    """What a checker says; one that fails does not let the checkpoint pass."""
    try:
        return ask(*about)
    except CheckpointException as error:
        return ValidationResult(str(checker.name), error.type, errors=[str(error)])
    except Exception as error:  # noqa: BLE001  # a user's checker may raise anything
        return ValidationResult(str(checker.name), errors=[f"the checker failed ({type(error).__name__}: {error})"])
