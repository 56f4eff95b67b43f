"""What the ranks of one machine want of a cold medium is read by one of them, and shown to the others in memory."""

import os
import random
import signal
import threading
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.distributed.reading.cold_reads import MIB, ColdReads
from tests.distributed.reading.test_exchange import flip_bit
from tests.distributed.test_save_on_ranks import marked
from tests.distributed.threads import all_well, on_ranks, save_all, told

import model_checkpoint as mc
from model_checkpoint.distributed import RankLost
from model_checkpoint.engine.common.workers import run_beside
from model_checkpoint.engine.reading.chunks import chunk_partners, shared_slots
from model_checkpoint.engine.reading.chunks.chunk_partners import find_partners
from model_checkpoint.engine.reading.chunks.shared_slots import Alone, OwnSlots, WaitLimit, slots_each, slots_of
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.contract import host
from model_checkpoint.storage.local.store import LocalStore

SCENES = "tests.distributed.scenes"
ROWS = (np.arange(48 * MIB) % 251).astype(np.uint8).reshape(24, 2 * MIB)
SIZE = ROWS.nbytes


@pytest.fixture(autouse=True)
def small_loads_are_worth_it(monkeypatch):
    monkeypatch.setattr(chunk_partners, "_WORTH", MIB)


def load_whole(root, world, *, calls=lambda rank: ColdReads(), live=True, patience=60.0, **options):
    """What each rank read, and how, when all of them have loaded all of it."""

    def work(ranks):
        mine = calls(ranks.rank)
        into = {"w": np.zeros_like(ROWS)} if live else None
        got = mc.load(LocalStore(root, calls=mine), into=into, coordinator=ranks, **options)
        assert np.array_equal(got["w"], ROWS)
        return mine

    return on_ranks(world, work, patience=patience)


def nbytes(outcomes):
    return [calls.nbytes for calls in all_well(outcomes)]


@pytest.mark.parametrize("world", [2, 3, 5])
@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("verify", ["fast", "full"])
def test_what_all_ranks_want_is_read_once_around_the_page_cache(tmp_path, world, live, verify):
    mc.save(tmp_path, {"w": ROWS}, step=1)

    outcomes = load_whole(tmp_path, world, live=live, verify=verify)

    assert sum(nbytes(outcomes)) < 1.05 * SIZE
    assert max(nbytes(outcomes)) < 1.3 * SIZE / world
    assert {direct for calls in outcomes for direct, _ in calls.reads} == {True}


@pytest.mark.parametrize("compression", [mc.CompressionLevel.NONE, mc.CompressionLevel.FAST])
def test_ranks_that_cut_every_row_read_each_chunk_once(tmp_path, compression):
    save_all(
        tmp_path, 3, lambda rank: {"w": marked(ROWS, (8 * rank, 0), (8, 2 * MIB))}, step=1, compression=compression
    )

    def work(ranks):
        calls, box = ColdReads(), ((0, MIB * ranks.rank), (24, MIB))
        live = {"w": marked(np.zeros_like(ROWS), *box)}
        mc.load(LocalStore(tmp_path, calls=calls), into=live, coordinator=ranks)
        assert np.array_equal(live["w"].array, ROWS[:, box[0][1] :][:, :MIB])
        return calls

    assert sum(nbytes(on_ranks(2, work))) < 1.05 * SIZE


def test_what_is_in_the_page_cache_is_read_from_there(tmp_path):
    class WarmReads(ColdReads):
        def resident(self, fd, size):
            return 1.0

    mc.save(tmp_path, {"w": ROWS}, step=1)

    assert min(nbytes(load_whole(tmp_path, 2, calls=lambda rank: WarmReads()))) > SIZE


@pytest.mark.slow
def test_what_all_ranks_want_of_a_bucket_is_fetched_once(moto, monkeypatch):
    root = ObjectStore("s3://bucket/shown", store=moto.client("bucket"))
    mc.save(root, {"w": ROWS}, step=1)
    copy, shown = shared_slots.stream_copy, []

    def count(room, data):
        shown.append(len(data))
        copy(room, data)

    monkeypatch.setattr(shared_slots, "stream_copy", count)

    def work(ranks):
        return np.array_equal(mc.load(root, coordinator=ranks)["w"], ROWS)

    assert all_well(on_ranks(2, work)) == [True, True]
    assert SIZE <= sum(shown) < 1.05 * SIZE


def test_ranks_of_two_machines_show_chunks_to_those_of_their_own(tmp_path, monkeypatch):
    mc.save(tmp_path, {"w": ROWS}, step=1)
    where = threading.local()
    monkeypatch.setattr(host, "boot_id", lambda: where.machine)

    def work(ranks):
        where.machine = f"machine {ranks.rank % 2}" if ranks.rank < 4 else "a third one"
        calls, live = ColdReads(), {"w": np.zeros_like(ROWS)}
        mc.load(LocalStore(tmp_path, calls=calls), into=live, coordinator=ranks)
        assert np.array_equal(live["w"], ROWS)
        return calls

    *paired, alone = nbytes(on_ranks(5, work))

    assert max(paired) < 0.6 * SIZE
    assert alone > SIZE


def test_a_rank_without_such_memory_leaves_all_to_read_for_themselves(tmp_path, monkeypatch):
    mc.save(tmp_path, {"w": ROWS}, step=1)
    make, turns = os.memfd_create, iter([True, False])

    def refuse_one(name):
        if next(turns):
            raise OSError(24, "Too many open files")
        return make(name)

    monkeypatch.setattr(os, "memfd_create", refuse_one)

    assert min(nbytes(load_whole(tmp_path, 2))) > SIZE


def test_a_rank_that_cannot_see_the_memory_of_others_wants_nothing_of_them(tmp_path, monkeypatch):
    mc.save(tmp_path, {"w": ROWS}, step=1)
    turns = iter([True, False])

    def hide_one(place, world_size):
        if next(turns):
            raise PermissionError(13, "Permission denied")
        return slots_of(place, world_size)

    monkeypatch.setattr(chunk_partners, "slots_of", hide_one)

    assert min(nbytes(load_whole(tmp_path, 2))) > SIZE


def test_what_is_spoilt_in_memory_is_read_from_the_medium(tmp_path, monkeypatch):
    mc.save(tmp_path, {"w": ROWS}, step=1)
    copy = shared_slots.stream_copy

    def spoil(room, data):
        copy(room, data)
        room[len(room) // 2] ^= 1

    monkeypatch.setattr(shared_slots, "stream_copy", spoil)

    assert min(nbytes(load_whole(tmp_path, 2))) > SIZE


def test_damage_on_the_medium_is_told_by_all_ranks_alike(tmp_path):
    info = mc.save(tmp_path, {"w": ROWS}, step=1)
    flip_bit(info, 30 * MIB)

    def work(ranks):
        return mc.load(LocalStore(tmp_path, calls=ColdReads()), parts="w", coordinator=ranks)

    assert "does not have the recorded digest" in str(told(on_ranks(3, work)))


def test_a_rank_whose_disk_breaks_is_the_only_one_that_cannot_load(tmp_path):
    mc.save(tmp_path, {"w": ROWS}, step=1)

    def break_at(number):
        if number >= 4:
            raise OSError(5, "Input/output error")

    outcomes = load_whole(tmp_path, 3, calls=lambda rank: ColdReads(break_at if rank == 1 else lambda _: None))

    assert [type(one).__name__ for one in outcomes] == ["PartlyLoaded"] * 3
    assert {one.ranks for one in outcomes} == {(1,)}
    assert {type(one.inner_exception).__name__ for one in outcomes} == {"StorageFailure"}


def test_ranks_do_not_wait_long_for_one_whose_disk_hangs_and_find_it_gone_at_the_end(tmp_path):
    mc.save(tmp_path, {"w": ROWS}, step=1)
    go_on = threading.Event()

    def hang_at(number):
        assert number < 3 or go_on.wait(60)

    def work(ranks):
        calls, live = ColdReads(hang_at if ranks.rank == 1 else lambda _: None), {"w": np.zeros_like(ROWS)}
        try:
            return mc.load(LocalStore(tmp_path, calls=calls), into=live, coordinator=ranks)
        finally:
            if ranks.rank == 0:
                assert np.array_equal(live["w"], ROWS)  # it had gone on alone
            go_on.set()

    first, second = on_ranks(2, work, patience=2.0)

    for error in (first, second):
        assert type(error.inner_exception) is RankLost
        assert error.ranks == (1,)


def test_a_caller_that_is_interrupted_leaves_nobody_waiting_and_changes_nothing_any_more(tmp_path):
    mc.save(tmp_path, {"w": ROWS}, step=1)
    live = [{"w": np.zeros_like(ROWS)} for _ in range(2)]

    class Interrupt(BaseException):
        pass

    def work(ranks):
        def tell(event):
            if ranks.rank == 1 and event.done > 8 * MIB:
                raise Interrupt

        calls = ColdReads()
        try:
            mc.load(LocalStore(tmp_path, calls=calls), into=live[ranks.rank], coordinator=ranks, progress=tell)
        finally:
            if ranks.rank == 1:
                left.append(live[1]["w"].copy())

    left = []
    first, second = on_ranks(2, work)

    assert isinstance(first, mc.CheckpointException)
    assert isinstance(second, (Interrupt, mc.CheckpointException))
    assert np.array_equal(live[1]["w"], left[0])


@given(st.integers(1, 4), st.integers(0, 40), st.integers(2, 8), st.randoms(use_true_random=False))
def test_every_looker_sees_every_chunk_once_and_whole(lookers, chunks, count, draw):
    mine = OwnSlots(lookers + 1)
    wait, sizes = WaitLimit(30.0), [draw.randrange(1, 3000) for _ in range(chunks)]
    missing = {number for number in range(1, chunks + 1) if draw.random() < 0.2}
    seen = [[] for _ in range(lookers)]

    def look(rank):
        theirs = slots_of(mine.place, lookers + 1)
        for number, size in enumerate(sizes, 1):
            data = theirs.look(number, size, count, wait)
            seen[rank].append(None if data is None else bytes(data))
            theirs.seen(number, count, rank)

    threads = [threading.Thread(target=look, args=(rank,)) for rank in range(lookers)]
    for thread in threads:
        thread.start()
    shown = [None if n in missing else random.Random(n).randbytes(size) for n, size in enumerate(sizes, 1)]
    for number, data in enumerate(shown, 1):
        mine.show(number, None if data is None else memoryview(data), dict.fromkeys(range(lookers), mine), count, wait)
    for thread in threads:
        thread.join()
    mine.close()

    assert seen == [shown] * lookers


def test_who_leaves_is_not_waited_for_but_what_was_shown_is_there():
    mine = OwnSlots(2)
    theirs, wait = slots_of(mine.place, 2), WaitLimit(60.0)
    mine.show(1, memoryview(b"one"), {1: mine}, 2, wait)
    mine.leave()
    mine.close()

    assert bytes(theirs.look(1, 3, 2, wait)) == b"one"
    with pytest.raises(Alone, match=r"^$"):
        theirs.look(2, 3, 2, wait)
    with pytest.raises(OSError, match="No such file"):
        slots_of((os.getpid(), -1), 2)


def test_who_does_not_look_is_not_waited_for_beyond_the_limit_and_who_has_left_not_at_all():
    mine, theirs = OwnSlots(2), OwnSlots(2)
    for number in (1, 2):
        mine.show(number, memoryview(b"x"), {1: theirs}, 2, WaitLimit(60.0))

    with pytest.raises(Alone, match=r"^$"):
        mine.show(3, memoryview(b"x"), {1: theirs}, 2, WaitLimit(0.01))
    theirs.leave()
    mine.show(3, memoryview(b"x"), {1: theirs}, 2, WaitLimit(0.0))

    for one in (mine, theirs):
        one.close()


@pytest.mark.parametrize(("ranks", "count"), [(1, 8), (4, 8), (5, 6), (8, 4), (16, 2), (1000, 2)])
def test_the_more_ranks_a_machine_has_the_fewer_slots_each_uses(ranks, count):
    assert slots_each(ranks) == count


def test_all_ranks_exchange_or_none_does():
    assert find_partners([{"exchanges": True}] * 3)["exchange"]
    assert not find_partners([{"exchanges": True}, {}])["exchange"]
    assert not find_partners([{"exchanges": True}])["exchange"]


@pytest.mark.parametrize("fails", ["beside", "work"])
def test_of_two_things_done_at_once_one_that_fails_stops_the_other(fails):
    stop, ended = threading.Event(), []

    def do(name):
        try:
            if name == fails:
                raise ValueError(name)
            assert stop.wait(60)
        finally:
            ended.append(name)

    with pytest.raises(ValueError, match=fails):
        run_beside(lambda: do("beside"), lambda: do("work"), stop=stop.set)

    assert sorted(ended) == ["beside", "work"]


def test_without_a_thread_for_it_one_thing_follows_the_other(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    order = []

    run_beside(lambda: order.append("beside"), lambda: order.append("work"), stop=lambda: None)

    assert order == ["work", "beside"]


@pytest.mark.slow
@pytest.mark.distributed
def test_real_ranks_read_each_chunk_of_their_columns_once(zygote, tmp_path):
    whole = np.arange(24 << 20, dtype=np.float32).reshape(4096, -1)
    save_all(tmp_path, 4, lambda rank: {"w": marked(whole, (1024 * rank, 0), (1024, whole.shape[1]))}, step=1)

    read = zygote.run(f"{SCENES}:load_shown", 3, tmp_path / "scene", root=str(tmp_path))

    assert sum(read) < 1.05 * whole.nbytes


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.fault
@pytest.mark.parametrize("ends", ["kill", "stop"])
@pytest.mark.parametrize("number", [1, 5])
def test_a_real_rank_that_ends_while_it_shows_is_named_by_the_others(zygote, tmp_path, ends, number):
    whole = np.arange(24 << 20, dtype=np.float32).reshape(4096, -1)
    save_all(tmp_path, 4, lambda rank: {"w": marked(whole, (1024 * rank, 0), (1024, whole.shape[1]))}, step=1)

    group = zygote.start(f"{SCENES}:load_shown", 3, tmp_path / "scene", root=str(tmp_path), ends=ends, number=number)
    try:
        for result in group.results([0, 2]):
            assert (result["error"], result["ranks"]) == ("PartlyLoaded", [1])
    finally:
        with suppress(ProcessLookupError):
            group.signal(1, signal.SIGCONT)
        group.end()
