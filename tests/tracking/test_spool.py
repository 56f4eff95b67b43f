"""What cannot go where it belongs is kept on disk, and handed on once when it can."""

import errno
import logging
import math
import multiprocessing
import os
import threading

import pytest
from tests.ground.stored.stored_files import flip

from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.tracking.errors import PayloadUnspoolable, SpoolFull
from model_checkpoint.tracking.spool import Spool


class Gone(Exception):
    """The place where records belong is away again."""


def drained(spool, **options):
    """What a replay hands on, in order."""
    seen = []
    spool.replay(lambda kind, payload: seen.append((kind, payload)), **options)
    return seen


def numbers(spool):
    return [payload["n"] for _, payload in drained(spool)]


def test_numbers_that_json_has_no_word_for_are_kept(tmp_path):
    spool = Spool(tmp_path)
    spool.put("metrics", {"values": [math.nan, math.inf, -math.inf, -0.0, 5e-324]})

    ((_, payload),) = drained(spool)

    assert [repr(value) for value in payload["values"]] == ["nan", "inf", "-inf", "-0.0", "5e-324"]


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes"], ids=lambda value: type(value).__name__)
def test_what_is_no_plain_data_is_refused_and_nothing_is_written(tmp_path, value):
    with pytest.raises(PayloadUnspoolable, match="a record of kind 'row' is no plain data"):
        Spool(tmp_path).put("row", {"value": value})

    assert list(tmp_path.iterdir()) == []


def test_nothing_is_made_on_disk_until_there_is_something_to_keep(tmp_path):
    spool = Spool(tmp_path / "a" / "spool")

    assert drained(spool) == []
    assert not (tmp_path / "a").exists()
    spool.put("k", {"n": 1})
    assert numbers(spool) == [1]


def test_a_replay_leaves_nothing_and_a_second_one_hands_nothing_on(tmp_path):
    spool = Spool(tmp_path)
    for n in range(5):
        spool.put("k", {"n": n})

    assert spool.nbytes() > 0
    assert numbers(spool) == list(range(5))
    assert numbers(spool) == []
    assert list(tmp_path.iterdir()) == []


def test_a_new_start_finds_what_an_earlier_one_left(tmp_path):
    spool = Spool(tmp_path)
    spool.put("k", {"n": 1})
    spool.close()

    assert numbers(Spool(tmp_path)) == [1]


def test_a_replay_that_is_cut_short_goes_on_where_it_stopped(tmp_path):
    spool, seen = Spool(tmp_path), []
    for n in range(6):
        spool.put("k", {"n": n})

    def until_three(kind, payload):
        if payload["n"] == 3:
            raise Gone("away again")
        seen.append(payload["n"])

    with pytest.raises(Gone, match="away again"):
        spool.replay(until_three)
    spool.put("k", {"n": 6})

    assert seen + numbers(Spool(tmp_path)) + numbers(spool) == list(range(7))


def test_a_file_whose_owner_lives_is_left_to_it(tmp_path):
    mine, other = Spool(tmp_path), Spool(tmp_path)
    mine.put("k", {"n": 1})

    assert numbers(other) == []
    assert numbers(mine) == [1]


def test_a_torn_tail_is_passed_over_and_all_before_it_counts(tmp_path):
    spool = Spool(tmp_path)
    spool.put("k", {"n": 1})
    spool.put("k", {"n": 2})
    spool.close()
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-5])

    assert numbers(Spool(tmp_path)) == [1]
    assert list(tmp_path.iterdir()) == []


def test_a_torn_tail_is_cut_before_a_replay_notes_how_far_it_came(tmp_path):
    spool = Spool(tmp_path)
    for n in range(4):
        spool.put("k", {"n": n})
    spool.close()
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    seen = []

    def fail_late(kind, payload):
        if payload["n"] == 2:
            raise Gone("away")
        seen.append(payload["n"])

    with pytest.raises(Gone, match="away"):
        Spool(tmp_path).replay(fail_late)

    assert seen + numbers(Spool(tmp_path)) == [0, 1, 2]
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_record_is_told_and_kept_and_the_others_are_handed_on(tmp_path, caplog):
    spool = Spool(tmp_path)
    for n in range(3):
        spool.put("k", {"n": n})
    spool.close()
    (file,) = tmp_path.iterdir()
    flip(file, file.stat().st_size // 2)

    with caplog.at_level(logging.ERROR, logger="model_checkpoint.tracking"):
        assert numbers(Spool(tmp_path)) == [0, 2]

    assert "1 records are damaged" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == [file.name + ".damaged"]
    assert numbers(Spool(tmp_path)) == []


def test_a_refused_record_blocks_no_other_and_is_tried_again_at_the_next_start(tmp_path, caplog):
    spool, seen = Spool(tmp_path), []
    for n in range(3):
        spool.put("k", {"n": n})

    def picky(kind, payload):
        if payload["n"] == 1:
            raise ValueError("no such run")
        seen.append(payload["n"])

    assert spool.replay(picky, refusals=(ValueError,)) == 2
    assert spool.replay(picky, refusals=(ValueError,)) == 0
    assert seen == [0, 2]
    assert "is refused and set aside: no such run" in caplog.text
    assert [path.suffix for path in tmp_path.iterdir()] == [".refused"]
    assert numbers(Spool(tmp_path)) == [1]
    assert list(tmp_path.iterdir()) == []


def test_records_of_one_kind_in_a_row_are_handed_on_together_and_only_the_refused_one_is_set_aside(tmp_path):
    spool, seen = Spool(tmp_path), []
    for n, kind in enumerate("aaabba"):
        spool.put(kind, {"n": n})

    def picky(kind, payloads):
        numbers = [payload["n"] for payload in payloads]
        if 1 in numbers:
            raise ValueError("not this one")
        seen.append((kind, numbers))

    assert spool.replay_batches(picky, refusals=(ValueError,)) == 5
    assert seen == [("a", [0]), ("a", [2]), ("b", [3, 4]), ("a", [5])]
    assert numbers(Spool(tmp_path)) == [1]


def test_a_batch_is_as_large_as_asked_for(tmp_path):
    spool, sizes = Spool(tmp_path), []
    for n in range(10):
        spool.put("k", {"n": n, "text": "x" * 300})

    spool.replay_batches(lambda kind, payloads: sizes.append(len(payloads)), nbytes=1_000)

    assert sizes == [3, 3, 3, 1]


def test_the_bound_holds_over_all_files_and_says_what_to_do(tmp_path):
    spool = Spool(tmp_path, limit=2_000)
    full = {"n": 0, "text": "x" * 300}

    for _ in range(5):
        spool.put("k", full)
    with pytest.raises(SpoolFull, match=r"holds 2000 bytes at most.*give the spool a larger limit"):
        spool.put("k", full)
    other = Spool(tmp_path, limit=2_000)
    with pytest.raises(OSError, match="at most"):
        other.put("k", full)

    assert spool.nbytes() <= 2_000
    assert len(numbers(spool)) == 5
    spool.put("k", full)  # there is room again


def test_a_file_is_left_for_a_new_one_before_it_grows_large(tmp_path, monkeypatch):
    monkeypatch.setattr("model_checkpoint.tracking.spool._SEGMENT", 500)
    spool = Spool(tmp_path)

    for n in range(50):
        spool.put("k", {"n": n})

    assert len(list(tmp_path.iterdir())) == 5
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 600
    assert numbers(spool) == list(range(50))


def test_threads_may_put_while_another_replays(tmp_path):
    spool, seen = Spool(tmp_path), []

    def put(first):
        for n in range(first, first + 100):
            spool.put("k", {"n": n})

    threads = [threading.Thread(target=put, args=(100 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen += numbers(spool)
    seen += numbers(spool)

    assert sorted(seen) == list(range(400))


def _put_and_replay(folder, first, results):
    spool, seen = Spool(folder), []
    for n in range(first, first + 50):
        spool.put("k", {"n": n})
        if n % 10 == 0:
            seen += numbers(spool)
    results.put(seen)


def test_processes_that_replay_at_once_hand_each_record_on_once(tmp_path):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    children = [context.Process(target=_put_and_replay, args=(tmp_path, 100 * i, results)) for i in range(6)]
    for child in children:
        child.start()
    seen = [n for _ in children for n in results.get(timeout=60)]
    for child in children:
        child.join()
    seen += numbers(Spool(tmp_path))

    assert sorted(seen) == sorted(100 * i + n for i in range(6) for n in range(50))


def test_a_forked_child_neither_writes_to_nor_holds_the_file_of_its_parent(tmp_path):
    spool = Spool(tmp_path)
    spool.put("k", {"n": 1})
    ready, go = os.pipe(), os.pipe()

    child = os.fork()
    if child == 0:
        spool.put("k", {"n": 2})
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    spool.close()
    other = numbers(Spool(tmp_path))  # the parent let go, so its file is free, although the child lives
    os.write(go[1], b"x")
    os.waitpid(child, 0)

    assert other == [1]
    assert numbers(Spool(tmp_path)) == [2]


class NoLocks(Syscalls):
    """A file system without locks."""

    def flock(self, fd, operation):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))


def test_without_locks_a_process_replays_its_own_and_others_only_what_is_old(tmp_path):
    mine, other = Spool(tmp_path, calls=NoLocks()), Spool(tmp_path, calls=NoLocks())
    mine.put("k", {"n": 1})
    assert numbers(other) == []
    assert numbers(mine) == [1]

    mine.put("k", {"n": 2})
    (file,) = tmp_path.iterdir()
    os.utime(file, (1, 1))

    assert numbers(other) == [2]
