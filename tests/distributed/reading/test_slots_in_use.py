"""Slots belong to those who look at them until they have looked, and nothing else is taken for slots."""

import os
import signal
import tempfile
import threading

import numpy as np
import pytest
from tests.distributed.reading.cold_reads import MIB, ColdReads
from tests.distributed.reading.shown_scenes import TABLE

import model_checkpoint as mc
from model_checkpoint.engine.reading.chunks import shared_slots
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader
from model_checkpoint.engine.reading.chunks.neighbour_chunks import NeighbourChunks
from model_checkpoint.engine.reading.chunks.shared_slots import OwnSlots, WaitLimit, own_slots, slots_of
from model_checkpoint.engine.root.listing import load_manifest
from model_checkpoint.plan import plan_reads
from model_checkpoint.storage.contract import host
from model_checkpoint.storage.local.store import LocalStore

SCENES = "tests.distributed.reading.shown_scenes"
ROWS = (np.arange(48 * MIB) % 251).astype(np.uint8).reshape(24, 2 * MIB)


def test_what_is_being_taken_is_not_overwritten_when_who_takes_it_goes_on_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_slots, "_MOST_SLOTS", 2)
    info = mc.save(tmp_path, {"w": ROWS}, step=1)
    store = LocalStore(tmp_path, calls=ColdReads())
    manifest = load_manifest(store, info.path.rpartition("/")[2])
    reads = plan_reads([0], manifest.entries, manifest.files)
    with open(f"{info.path}/{manifest.files[0].name}", "rb") as file:
        stored = file.read()
    shown = [stored[read.start : read.stop] for read in reads][::2]  # those of rank 0, which the test plays
    first, second = OwnSlots(2), OwnSlots(2)
    for number in (1, 2):
        first.show(number, memoryview(shown[number - 1]), {1: second}, 2, WaitLimit(60.0))
    overwritten, got = threading.Event(), {}

    def show_more():
        for number in (3, 4):
            first.show(number, memoryview(shown[number - 1]), {1: second}, 2, WaitLimit(60.0))
        overwritten.set()

    def place(read):
        """Called between the look at a chunk and its copy; meanwhile rank 1 waits for rank 0 in vain."""
        if read in reads[:3:2]:
            overwritten.wait(0.5)
        return memoryview(bytearray(read.stop - read.start))

    showing = threading.Thread(target=show_more)
    showing.start()
    with ChunkReader(store, manifest, full=False) as medium:
        slots = {0: slots_of(first.place, 2), 1: second}
        chunks = NeighbourChunks(medium, manifest, rank=1, slots=slots, agree=lambda wanted: wanted, seconds=0.05)
        chunks.read_chunks(reads, place, lambda read, data: got.update({read.start: bytes(data)}))
    showing.join()

    assert got == {read.start: stored[read.start : read.stop] for read in reads}
    for one in (first, second):
        one.close()


def test_what_has_the_descriptor_of_slots_that_are_gone_is_not_touched():
    slots = OwnSlots(2)
    place, number = slots.place, slots.place[1]
    with tempfile.TemporaryFile() as other:
        other.truncate(64 * MIB)
        slots.close()
        os.dup2(other.fileno(), number)
        try:
            with pytest.raises(FileNotFoundError, match="no such slots any more"):
                slots_of(place, 2)
        finally:
            os.close(number)


def test_where_it_is_not_known_which_machine_this_is_nothing_is_shown(monkeypatch):
    monkeypatch.setattr(host, "boot_id", lambda: "")

    assert own_slots(2) is None


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.fault
def test_a_rank_that_stops_while_it_takes_a_chunk_finds_it_as_it_was_when_it_goes_on(zygote, tmp_path):
    mc.save(tmp_path, {"w": TABLE}, step=1)

    group = zygote.start(f"{SCENES}:stopped_while_taking", 3, tmp_path / "scene", root=str(tmp_path))
    try:
        told = [result["value"] for result in group.results([0, 2])]
        group.signal(1, signal.SIGCONT)
        told += [result["value"] for result in group.results([1])]
    finally:
        group.end()

    assert (tmp_path / "scene" / "midway").exists()
    assert {(one["error"], *one["ranks"]) for one in told} == {("PartlyLoaded", 1)}
    assert [one["wrong"] for one in told] == [0, 0, 0]
    assert [one["right"] for one in told[:2]] == [TABLE.size] * 2  # they had read what was left alone


@pytest.mark.slow
@pytest.mark.distributed
def test_two_jobs_on_one_machine_show_chunks_each_to_its_own_ranks(zygote, tmp_path):
    whole = np.arange(24 << 20, dtype=np.float32).reshape(4096, -1)
    mc.save(tmp_path, {"w": whole}, step=1)
    scene, root = "tests.distributed.scenes:load_shown", str(tmp_path)

    groups = [zygote.start(scene, 2, tmp_path / f"scene-{number}", root=root) for number in range(2)]
    try:
        read = [sum(group.values()) for group in groups]
    finally:
        for group in groups:
            group.end()

    assert max(read) < 1.05 * whole.nbytes
