"""Checksums are those of `sha256sum`, of one moment, with each byte read once."""

import os
import subprocess
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ground.stored.stored_files import flip

from model_checkpoint.errors import OptionInvalid, PermissionRefused, StorageFailure, UnsafeName
from model_checkpoint.integrity import ChecksumCalculator, FileChecksum, FileMissing, FileState
from model_checkpoint.testing.crash import run_in_child


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "weights.pt"
    path.write_bytes(os.urandom(3_000_001))
    return path


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1 << 20, (1 << 20) + 1])
def test_a_checksum_is_what_sha256sum_prints(tmp_path, size):
    path = tmp_path / "file with spaces"
    path.write_bytes(os.urandom(size))

    printed = subprocess.check_output(["sha256sum", path], text=True).split()[0]

    assert ChecksumCalculator().file_checksum(path) == printed
    assert ChecksumCalculator().data_checksum(path.read_bytes()) == printed


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.binary(max_size=300), chunk=st.integers(1, 64))
def test_the_size_of_the_pieces_does_not_matter(data, chunk, tmp_path_factory):
    path = tmp_path_factory.mktemp("x") / "file"
    path.write_bytes(data)

    assert ChecksumCalculator(chunk_size=chunk).file_checksum(path) == ChecksumCalculator().data_checksum(data)


@pytest.mark.parametrize("tool", ["sha512", "md5", "blake2b"])
def test_other_algorithms_are_those_of_the_system_too(weights, tool):
    printed = subprocess.check_output([{"blake2b": "b2sum"}.get(tool, f"{tool}sum"), weights], text=True).split()[0]

    assert ChecksumCalculator(tool).file_checksum(weights) == printed


def test_many_files_are_read_at_once_and_come_in_their_order(tmp_path):
    paths = [tmp_path / f"{n}" for n in range(20)]
    for path in paths:
        path.write_bytes(path.name.encode() * 1000)

    found = ChecksumCalculator(max_workers=4).file_checksums(reversed(paths))

    assert list(found) == [str(path) for path in reversed(paths)]
    assert all(found[str(path)].checksum == ChecksumCalculator().file_checksum(path) for path in paths)


def test_each_byte_is_read_once(weights, monkeypatch):
    read, real = [], os.preadv

    def counting(fd, buffers, offset):
        count = real(fd, buffers, offset)
        read.append(count)
        return count

    monkeypatch.setattr(os, "preadv", counting)
    ChecksumCalculator().file_checksum_with_metadata(weights)

    assert sum(read) == 3_000_001


def test_a_file_of_another_size_is_not_read(weights, monkeypatch):
    known = ChecksumCalculator().file_checksum_with_metadata(weights)
    weights.write_bytes(weights.read_bytes()[:-1])
    monkeypatch.setattr(os, "preadv", lambda *_: pytest.fail("it was read"))

    assert ChecksumCalculator().verify_file_with_metadata(weights, known) is FileState.SIZE_MISMATCH


def test_a_file_that_changes_while_it_is_read_is_read_again(weights, monkeypatch):
    real, changed = os.preadv, []

    def change_once(fd, buffers, offset):
        if offset and not changed:
            changed.append(True)
            with open(weights, "r+b") as file:
                file.write(b"new start")
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", change_once)
    found = ChecksumCalculator(chunk_size=1 << 16).file_checksum(weights)

    assert found == ChecksumCalculator().data_checksum(weights.read_bytes())


def test_a_file_that_never_rests_has_no_checksum(weights, monkeypatch):
    real = os.preadv

    def change(fd, buffers, offset):
        with open(weights, "ab") as file:
            file.write(b"more")
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", change)
    with pytest.raises(StorageFailure, match="changed 3 times while it was being read"):
        ChecksumCalculator(chunk_size=1 << 22).file_checksum(weights)


def test_a_missing_file_is_an_error_and_never_verified(tmp_path):
    gone = tmp_path / "gone"
    record = FileChecksum(path=str(gone), algorithm="sha256", checksum="ab", size=1)

    with pytest.raises(FileMissing, match="gone: no such file"):
        ChecksumCalculator().file_checksum(gone)
    with pytest.raises(FileNotFoundError, match="no such file"):
        ChecksumCalculator().file_checksums([gone])
    assert not ChecksumCalculator().verify_file(gone, "ab")
    assert ChecksumCalculator().verify_file_with_metadata(gone, record) is FileState.FILE_MISSING


def test_one_flipped_bit_is_seen(weights):
    known = ChecksumCalculator().file_checksum_with_metadata(weights)
    flip(weights, 1_500_000)

    assert not ChecksumCalculator().verify_file(weights, known.checksum)
    assert ChecksumCalculator().verify_file_with_metadata(weights, known) is FileState.CHECKSUM_MISMATCH


def test_checksums_in_capital_letters_are_the_same(weights):
    checksum = ChecksumCalculator().file_checksum(weights)

    assert ChecksumCalculator().verify_file(weights, checksum.upper())
    assert ChecksumCalculator().verify_data(weights.read_bytes(), checksum.upper())


def test_a_record_of_another_algorithm_is_compared_by_that_one(weights):
    known = ChecksumCalculator("sha512").file_checksum_with_metadata(weights)

    assert ChecksumCalculator().verify_file_with_metadata(weights, known) is FileState.VERIFIED


def test_folders_and_pipes_are_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    for name in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(UnsafeName, match="is no regular file"):
            ChecksumCalculator().file_checksum(name)


def test_a_file_that_may_not_be_read_is_told_and_is_no_damage(weights):
    known = ChecksumCalculator().file_checksum_with_metadata(weights)
    weights.chmod(0)

    def work(_):
        if os.geteuid() == 0:
            os.setuid(65534)  # root may read everything
        state = ChecksumCalculator().verify_file_with_metadata(weights, known)
        assert state is FileState.UNREADABLE
        ChecksumCalculator().file_checksum(weights)

    assert type(run_in_child(work).error) is PermissionRefused


def test_an_unknown_algorithm_is_refused():
    with pytest.raises(OptionInvalid, match="unknown algorithm 'crc32', expected one of"):
        ChecksumCalculator("crc32")
    with pytest.raises(OptionInvalid, match="chunk_size is 0"):
        ChecksumCalculator(chunk_size=0)


def test_threads_share_a_calculator(tmp_path):
    calculator, wrong = ChecksumCalculator(), []
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)
    expected = calculator.file_checksum(path)

    def work():
        wrong.extend(1 for _ in range(50) if calculator.file_checksum(path) != expected)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
