"""Checkers: what is asked of each file of a checkpoint, and of the checkpoint as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from model_checkpoint.distributed.records.checkpoint_metadata import CheckpointMetadata, ShardMetadata
from model_checkpoint.distributed.validating.validation_result import ValidationResult
from model_checkpoint.engine.reading.verify import Damage, examine_file
from model_checkpoint.errors import ExceptionType
from model_checkpoint.events import Emit, ignore
from model_checkpoint.manifest import FORMAT_VERSION, Manifest
from model_checkpoint.storage.contract.store import Store

_listener: ContextVar[Emit] = ContextVar("listener", default=ignore)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@contextmanager
def told_to(emit: Emit) -> Iterator[None]:
    """Let ``emit`` hear how many bytes checkers have read meanwhile, whoever asks them."""
    token = _listener.set(emit)
    try:
        yield
    finally:
        _listener.reset(token)


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One file of a checkpoint, to be looked into."""

    store: Store
    manifest: Manifest
    name: str

    @property
    def size(self) -> int:
        """Bytes it really has."""
        reader = self.store.open(self.manifest.name, self.name)
        try:
            return reader.size
        finally:
            reader.close()

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        """Its bytes as they are stored, or some of them."""
        reader = self.store.open(self.manifest.name, self.name)
        try:
            end = reader.size if stop is None else min(stop, reader.size)
            data = bytearray(max(0, end - start))
            reader.read_into(start, memoryview(data))
            return bytes(data)
        finally:
            reader.close()

    def damage(self) -> list[Damage]:
        """Read all of it, chunk by chunk, and tell what does not have its SHA-256."""
        return examine_file(self.store, self.manifest, self.name, emit=_listener.get())


@runtime_checkable
class IntegrityChecker(Protocol):
    """Looks at one file of a checkpoint."""

    name: str

    def check_integrity(self, data: ShardFile, shard: ShardMetadata) -> ValidationResult:
        """What is wrong with the file, by what is recorded of it."""
        ...


@runtime_checkable
class CompatibilityChecker(Protocol):
    """Looks at a checkpoint as a whole."""

    name: str

    def check_compatibility(self, metadata: CheckpointMetadata) -> ValidationResult:
        """Why this program cannot use it."""
        ...


class SizeChecker:
    """Whether a file is as long as it was."""

    name = "size"

    def check_integrity(self, data: ShardFile, shard: ShardMetadata) -> ValidationResult:
        """Compare the length."""
        result = ValidationResult(self.name, ExceptionType.CORRUPTED_CHECKPOINT)
        if data.size != shard.file_size:
            result.add_error(f"{shard.file_path} has {data.size} bytes, {shard.file_size} were written")
        return result


class ChecksumChecker:
    """Whether every chunk of a file has its SHA-256."""

    name = "checksum"

    def check_integrity(self, data: ShardFile, shard: ShardMetadata) -> ValidationResult:
        """Read the file and compare its digests."""
        result = ValidationResult(self.name, ExceptionType.CORRUPTED_CHECKPOINT)
        if not shard.checksum:
            result.add_warning(f"{shard.file_path} has no checksum to compare with")
        for damage in data.damage():
            result.add_error(damage.problem)
        return result


class VersionChecker:
    """Whether the format is one this library reads: the majors must agree."""

    name = "version"

    def check_compatibility(self, metadata: CheckpointMetadata) -> ValidationResult:
        """Compare the version."""
        result = ValidationResult(self.name, ExceptionType.INCOMPATIBLE_VERSION)
        match = _VERSION.fullmatch(metadata.version)
        if match is None:
            result.add_error(f"the version {metadata.version!r} cannot be read, expected something like 1.0.0")
        elif int(match[1]) != FORMAT_VERSION:
            result.add_error(f"written in format {metadata.version}, this library reads {FORMAT_VERSION}.x")
        return result


class SchemaChecker:
    """Whether what is recorded fits together."""

    name = "schema"

    def check_compatibility(self, metadata: CheckpointMetadata) -> ValidationResult:
        """Look for what cannot be."""
        result = ValidationResult(self.name)
        if metadata.world_size < 1:
            result.add_error(f"saved by {metadata.world_size} ranks")
        strangers = sorted({one.rank for one in metadata.shards if not 0 <= one.rank < max(1, metadata.world_size)})
        if strangers:
            result.add_error(f"has files of ranks {strangers[:8]}, but {metadata.world_size} ranks saved it")
        names = [one.file_path for one in metadata.shards]
        if len(set(names)) < len(names):
            result.add_error("has two files of one name")
        if not metadata.parts:
            result.add_warning("has no parts that could be told apart")
        return result
