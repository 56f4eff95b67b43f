"""Files that other programs wrote are compared with their records, and read by nobody before that."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.ground.stored.stored_files import flip
from tests.integrity.verified_runs import answers

from model_checkpoint.database import Checkpoint
from model_checkpoint.errors import CorruptedCheckpoint
from model_checkpoint.integrity import CheckpointVerifier, ChecksumCalculator, IntegrityTracker


@pytest.fixture
def bare(tmp_path):
    """A row of a bare file, as another program may have left it."""
    path = tmp_path / "weights.pt"
    path.write_bytes(os.urandom(100_000))
    row = Checkpoint(id="c1", experiment_id="r1", file_path=str(path), file_size=100_000, backend="torch")
    return replace(row, checksum=ChecksumCalculator().file_checksum(path))


class OneRow:
    """A catalog of one record."""

    def __init__(self, row):
        self.row, self.kept = row, []

    def get_checkpoint(self, checkpoint_id, /):
        return self.row

    def get_checkpoints_by_experiment(self, experiment_id, /):
        return [self.row]

    def due_for_verification(self, *, before=None, limit=100):
        return [self.row]

    def record_integrity(self, record, /):
        self.kept.append(record)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda path: None, [True, True, True, True, None]),
        (os.unlink, [True, False, None, None, None]),
        (lambda path: os.truncate(path, 10), [True, True, False, None, None]),
        (lambda path: flip(path), [True, True, True, False, None]),
    ],
    ids=["healthy", "lost", "cut", "flipped"],
)
def test_a_bare_file_is_compared_with_its_record(bare, damage, told):
    damage(bare.file_path)

    verdict = CheckpointVerifier(OneRow(bare)).verify_checkpoint("c1")

    assert list(answers(verdict).values()) == told
    assert verdict.ok == (told[3] is True)


def test_the_checksum_of_a_bare_file_may_come_from_a_tracker(tmp_path, bare):
    tracker, row = IntegrityTracker(tmp_path), replace(bare, checksum="")
    unknown = CheckpointVerifier(OneRow(row), tracker).verify_checkpoint("c1")
    tracker.add_file(bare.file_path)

    assert "no checksum was recorded" in unknown.problems[0]
    assert CheckpointVerifier(OneRow(row), tracker).verify_checkpoint("c1").ok
    flip(bare.file_path)
    assert not CheckpointVerifier(OneRow(row), tracker).verify_checkpoint("c1").ok


def test_a_record_of_no_place_is_told(tmp_path):
    row, tracker = Checkpoint(id="c1", experiment_id="r1"), IntegrityTracker(tmp_path)

    verdict = CheckpointVerifier(OneRow(row), tracker).verify_checkpoint("c1")

    assert (verdict.ok, verdict.problems) == (False, ("c1: no place was recorded.",))


def refuse(record):
    raise EOFError("ran out of input")


@pytest.mark.parametrize(
    ("load", "passed", "problem"),
    [
        (lambda record: None, True, ""),
        (lambda record: False, False, "its reader says"),
        (refuse, False, "EOFError: ran out of input"),
    ],
    ids=["fine", "says no", "raises"],
)
def test_what_its_own_reader_says_of_a_file_counts(bare, load, passed, problem):
    verdict = CheckpointVerifier(OneRow(bare), load=load).verify_checkpoint("c1")

    assert verdict.check("loadable").passed is passed
    assert problem in " ".join(verdict.problems)
    assert verdict.ok is passed


def test_a_reader_is_never_given_bytes_that_are_not_those_that_were_saved(bare):
    flip(bare.file_path)

    verdict = CheckpointVerifier(OneRow(bare), load=lambda record: pytest.fail("it was read")).verify_checkpoint("c1")

    assert answers(verdict)["loadable"] is None


def test_a_bare_file_is_backed_up_only_if_it_is_what_was_saved(tmp_path, bare):
    verifier = CheckpointVerifier(OneRow(bare))
    where = verifier.create_checkpoint_backup("c1", tmp_path / "second")

    assert Path(where).read_bytes() == Path(bare.file_path).read_bytes()
    with pytest.raises(FileExistsError, match="exists already"):
        verifier.create_checkpoint_backup("c1", tmp_path / "second")
    flip(bare.file_path)
    with pytest.raises(CorruptedCheckpoint, match="so it was not copied"):
        verifier.create_checkpoint_backup("c1", tmp_path / "third")
    assert list((tmp_path / "third").iterdir()) == []
    os.unlink(bare.file_path)
    with pytest.raises(FileNotFoundError, match="no such file, so it cannot be copied"):
        verifier.create_checkpoint_backup("c1", tmp_path / "fourth")
