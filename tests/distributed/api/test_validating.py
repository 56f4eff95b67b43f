"""Validators, checkers and their results."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint.distributed import (
    CheckpointFormat,
    CheckpointMetadata,
    CheckpointOptions,
    CheckpointValidator,
    DistributedCheckpointFactory,
    ExceptionType,
    LocalCoordinator,
    ShardMetadata,
    StorageOptions,
    ValidationResult,
)
from model_checkpoint.distributed.validating.checkers import SchemaChecker

METADATA = CheckpointMetadata(
    prefix="x",
    version="1.0.0",
    timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    world_size=2,
    format=CheckpointFormat.MULTI_SHARD,
    parts=("model",),
    shards=[ShardMetadata(rank=rank, file_path=f"r{rank}", file_size=9, checksum="aa") for rank in range(2)],
)


@pytest.fixture
def saved(tmp_path):
    mc.save(tmp_path, {"model": {"w": np.arange(5000.0)}}, name="x")
    (file,) = (tmp_path / "checkpoints" / "x").glob("*.safetensors")
    return tmp_path, file


def checker_of(result):
    """The checkers that have something to say."""
    return [one.name for one in result.walk() if one.errors]


def test_a_whole_checkpoint_is_valid(saved):
    result = CheckpointValidator(saved[0]).validate_checkpoint("x")

    assert result.is_valid
    assert not result.has_warnings
    assert result.get_summary() == "x: valid"
    assert [one.name for one in result.sub_results] == ["compatibility", "integrity"]


@pytest.mark.parametrize(
    ("damage", "checkers"),
    [
        (lambda data: data[:-1] + b"?", ["checksum"]),
        (lambda data: data[:-8], ["size", "checksum"]),
        (lambda data: data + b"more", ["size", "checksum"]),
    ],
)
def test_damage_is_found_by_digest_and_by_size(saved, damage, checkers):
    root, file = saved
    file.write_bytes(damage(file.read_bytes()))

    result = CheckpointValidator(root).validate_checkpoint("x")

    assert checker_of(result) == checkers
    assert file.name in result.get_summary()
    assert all(one.type is ExceptionType.CORRUPTED_CHECKPOINT for one in result.walk() if one.errors)
    assert CheckpointValidator(root, []).validate_checkpoint("x").is_valid


def test_a_file_or_a_checkpoint_that_is_gone_is_reported_and_never_raised(saved):
    root, file = saved
    file.unlink()

    assert not CheckpointValidator(root).validate_checkpoint("x").is_valid
    missing = CheckpointValidator(root).validate_checkpoint("y")
    assert missing.type is ExceptionType.LOAD_FAILED
    assert not missing.is_valid
    assert not CheckpointValidator(root).validate_shards(METADATA, "y").is_valid
    (root / "checkpoints" / "x" / "manifest.json").write_text("no manifest")
    assert CheckpointValidator(root).validate_checkpoint("x").type is ExceptionType.CORRUPTED_CHECKPOINT


@pytest.mark.parametrize(
    ("metadata", "checker", "kind"),
    [
        (replace(METADATA, version="2.0.0"), "version", ExceptionType.INCOMPATIBLE_VERSION),
        (replace(METADATA, version="one"), "version", ExceptionType.INCOMPATIBLE_VERSION),
        (replace(METADATA, world_size=0), "schema", ExceptionType.VALIDATION_FAILED),
        (replace(METADATA, world_size=1), "schema", ExceptionType.VALIDATION_FAILED),
        (replace(METADATA, shards=[*METADATA.shards] * 2), "schema", ExceptionType.VALIDATION_FAILED),
    ],
)
def test_metadata_that_cannot_be_used_are_reported(tmp_path, metadata, checker, kind):
    result = CheckpointValidator(tmp_path).validate_metadata(metadata)

    assert checker_of(result) == [checker]
    assert [one.type for one in result.walk() if one.errors] == [kind]
    assert CheckpointValidator(tmp_path, None, []).validate_metadata(metadata).is_valid


def test_good_metadata_and_a_newer_minor_version_pass(tmp_path):
    validator = CheckpointValidator(tmp_path)

    assert validator.validate_metadata(METADATA).is_valid
    assert validator.validate_metadata(replace(METADATA, version="1.7.2")).is_valid
    assert validator.validate_metadata(replace(METADATA, parts=())).has_warnings


def test_a_checker_that_fails_does_not_let_a_checkpoint_pass(saved):
    class Broken:
        name = "broken"

        def check_integrity(self, data, shard):
            raise ZeroDivisionError("by zero")

    result = CheckpointValidator(saved[0], [Broken()]).validate_checkpoint("x")

    assert result.get_summary() == "broken: error: the checker failed (ZeroDivisionError: by zero)"


def test_findings_add_up_and_each_is_told_once():
    inner = ValidationResult("inner")
    inner.add_error("bad")
    inner.add_warning("odd")
    outer = ValidationResult("outer")
    outer.add_sub_results(inner, ValidationResult("fine"))

    assert (outer.is_valid, outer.has_warnings, outer.errors) == (False, True, [])
    assert outer.get_summary() == "inner: error: bad\ninner: warning: odd"


def test_the_ranks_together_read_each_file_once(tmp_path):
    def save(coordinator):
        mc.save(tmp_path, {"w": np.full(1000, coordinator.rank)}, name="x", coordinator=coordinator)

    all_well(on_ranks(3, save))
    seen = []

    class Seen:
        name = "seen"

        def check_integrity(self, data, shard):
            seen.append(shard.file_path)
            return ValidationResult()

    for coordinator in LocalCoordinator.group(3):
        CheckpointValidator(tmp_path, [Seen()], coordinator=coordinator).validate_checkpoint("x")

    assert len(seen) == len(set(seen))
    files = {path.name for path in (tmp_path / "checkpoints" / "x").iterdir()}
    assert set(seen) == files - {"manifest.json"}
    CheckpointValidator(tmp_path, [Seen()]).validate_checkpoint("x")  # one alone reads them all
    assert sorted(seen) == sorted([*set(seen)] * 2)


def test_checks_are_on_unless_an_empty_list_says_none(saved):
    root, file = saved
    file.write_bytes(file.read_bytes()[:-1] + b"?")

    def valid(**checkers):
        options = CheckpointOptions(storage=StorageOptions(connection_settings={"basePath": str(root)}), **checkers)
        checkpoint = DistributedCheckpointFactory.create(LocalCoordinator(), options)
        return checkpoint._services.validator.validate_checkpoint("x").is_valid

    assert not valid()
    assert not valid(integrity_checkers=None)
    assert valid(integrity_checkers=[])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"world_size": 0, "shards": []}, "saved by 0 ranks"),
        ({"world_size": 0, "shards": METADATA.shards[:1]}, "saved by 0 ranks"),
        ({"world_size": 1}, "has files of ranks [1], but 1 ranks saved it"),
        ({"shards": [METADATA.shards[0]] * 2}, "has two files of one name"),
    ],
)
def test_what_cannot_be_is_found_in_what_is_recorded(change, told):
    assert SchemaChecker().check_compatibility(METADATA).is_valid
    assert list(SchemaChecker().check_compatibility(replace(METADATA, **change)).errors) == [told]
