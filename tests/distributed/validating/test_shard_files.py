"""A checker may read any bytes of a file, and a result adds up what all of them have found."""

import os
from dataclasses import replace

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.distributed import ExceptionType, ValidationResult
from model_checkpoint.distributed.records.checkpoint_metadata import metadata_of
from model_checkpoint.distributed.validating.checkers import ChecksumChecker, ShardFile
from model_checkpoint.engine.root.listing import read_any_manifest
from model_checkpoint.storage import open_store


@pytest.mark.parametrize(
    ("start", "stop"), [(0, None), (0, 10), (5, 10), (5, None), (0, 10**9), (10, 5), (0, 0), (7, 7)]
)
def test_the_bytes_of_a_file_are_read_as_they_are_stored(tmp_path, start, stop):
    info = mc.save(tmp_path, {"w": np.arange(100)}, name="first")
    store = open_store(tmp_path)
    (shard,) = metadata_of(store, "first").shards
    with open(os.path.join(info.path, shard.file_path), "rb") as file:
        content = file.read()

    data = ShardFile(store, read_any_manifest(store, "first"), shard.file_path)
    open_files = len(os.listdir("/proc/self/fd"))

    assert data.size == shard.file_size == len(content)
    assert data.read(start, stop) == content[start:stop]
    assert data.read() == content
    assert data.damage() == []
    assert len(os.listdir("/proc/self/fd")) == open_files


def test_a_file_of_which_no_digest_is_recorded_is_odd_but_no_error(tmp_path):
    mc.save(tmp_path, {"w": np.arange(100)}, name="first")
    store = open_store(tmp_path)
    (shard,) = metadata_of(store, "first").shards
    data = ShardFile(store, read_any_manifest(store, "first"), shard.file_path)

    assert ChecksumChecker().check_integrity(data, shard).warnings == []
    result = ChecksumChecker().check_integrity(data, replace(shard, checksum=""))

    assert (result.is_valid, result.warnings) == (True, [f"{shard.file_path} has no checksum to compare with"])


def test_a_result_is_as_good_as_the_worst_below_it():
    whole, part, leaf = ValidationResult("whole"), ValidationResult("part"), ValidationResult()
    whole.add_sub_results(part, ValidationResult("other"))
    part.add_sub_results(leaf)
    assert (whole.is_valid, whole.has_warnings, whole.get_summary()) == (True, False, "whole: valid")
    assert (leaf.get_summary(), leaf.type) == ("valid", ExceptionType.VALIDATION_FAILED)

    leaf.add_warning("odd")
    assert (whole.is_valid, whole.has_warnings, whole.get_summary()) == (True, True, "warning: odd")
    part.add_error("wrong")
    assert (whole.is_valid, part.is_valid, leaf.is_valid) == (False, False, True)
    whole.add_warning("strange")
    assert whole.get_summary() == "part: error: wrong\nwhole: warning: strange\nwarning: odd"
    assert [one.name for one in whole.walk()] == ["whole", "part", "", "other"]
