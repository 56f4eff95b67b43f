"""One rank of a save by itself: its signs of life, how it gives up, and what its layouts are called."""

import numpy as np
import pytest
from tests.distributed.threads import all_well, on_ranks
from tests.engine.ranks.test_rank_endings import TrappedAttempt, TrappedStore
from tests.engine.ranks.timetable import beats_until

import model_checkpoint as mc
from model_checkpoint.distributed import LocalCoordinator
from model_checkpoint.engine.writing.rank_saves.save_ranks import RankSave, _fingerprinted, _placed
from model_checkpoint.engine.writing.request import request_save
from model_checkpoint.engine.writing.save import rank_request
from model_checkpoint.errors import ChunkMismatch, OptionInvalid
from model_checkpoint.events import Progress
from model_checkpoint.manifest import Layout
from model_checkpoint.manifest.layout_record import HeldRegion, Placement
from model_checkpoint.state import Leaf, LocalArray, Sharding
from model_checkpoint.storage.memory import InMemoryStore


@pytest.fixture
def root(tmp_path):
    return f"memory://{tmp_path.name}"


def begun(store):
    """A save of one rank, about to be written."""
    asked = rank_request(store, lambda: request_save(step=1, name=None, metrics=None, metadata=None), False)
    saving = RankSave(store, asked, LocalCoordinator())
    saving.begin({"w": np.arange(4)}, enter=lambda busy: True)
    return saving


def test_bytes_written_are_a_sign_of_life(talk, root):
    _, ranks = talk(rank=1, patience=0.008)
    event, heard = Progress(operation="saving", done=5, total=9, seconds=0.0), []
    saving = RankSave(InMemoryStore(root), None, ranks)

    saving.heard(heard.append)(event)
    beats_until(ranks, lambda beats: beats[-1:] == ["5.0"])
    saving.excuse(KeyboardInterrupt())

    assert heard == [event]


@pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), ValueError("no"), OptionInvalid("no")])
def test_who_abandons_a_save_need_not_hear_why_again(root, error):
    begun(InMemoryStore(root)).abandon(error)

    assert mc.list_checkpoints(root) == []
    assert not [stage for stage in InMemoryStore(root)._bucket.stages.values() if stage.alive]


class Unsettled(InMemoryStore):
    """Memory that breaks when a save is to be ended."""

    def settle(self, name, attempt):
        raise LookupError("settling broke")


def test_what_breaks_while_a_save_is_abandoned_is_raised(root):
    saving = begun(Unsettled(root))

    with pytest.raises(LookupError, match="settling broke"):
        saving.abandon(ValueError("no"))


# --- layouts ---------------------------------------------------------------------------------------------------------


def leaf(name, layout=None, *, declared=True):
    sharding = None if layout is None else Sharding(layout, [], declared)
    return Leaf(name, "numpy", "int64", (4,), "I64", None, None, 8, sharding=sharding)


def rows(*ranks):
    return Layout(mesh=(len(ranks),), ranks=ranks, placements=(Placement(0),))


def test_layouts_speak_of_the_ranks_of_the_group():
    region = HeldRegion((0,), (4,), (7,))
    open_one = leaf("open", Layout(regions=(region,)), declared=False)
    shared = rows(5, 7)
    given = [leaf("a", shared), leaf("plain"), open_one, leaf("b", shared), leaf("boxes", Layout(regions=(region,)))]

    made = _placed(given, {5: 0, 7: 1})

    assert [one.name for one in made] == ["a", "plain", "open", "b", "boxes"]
    assert made[0].sharding.layout == rows(0, 1)
    assert made[3].sharding.layout is made[0].sharding.layout
    assert made[4].sharding.layout.regions == (HeldRegion((0,), (4,), (1,)),)
    assert made[1:3] == given[1:3]


def test_layouts_that_speak_of_them_already_are_left_alone():
    given = [leaf("a", rows(0, 1)), leaf("plain")]

    assert all(one is other for one, other in zip(_placed(given, {0: 0, 1: 1}), given, strict=True))


def test_an_array_on_a_rank_outside_the_group_is_refused():
    with pytest.raises(OptionInvalid, match=r"^a: lies on rank 6, which is not of the coordinator's group"):
        _placed([leaf("a", rows(5, 6))], {5: 0, 7: 1})


def test_only_what_other_ranks_may_have_too_without_saying_so_is_compared_by_content():
    whole, source = leaf("whole"), object()
    some = leaf("some", rows(0, 1))._replace(sharding=Sharding(rows(0, 1), [LocalArray((2,), source)]))

    assert _fingerprinted(whole, 3) is whole
    assert _fingerprinted(some, 3).source is source
    assert _fingerprinted(some, 2) is None
    assert _fingerprinted(leaf("an empty part", Layout(), declared=False), 3) is None
    assert _fingerprinted(leaf("boxes", Layout(regions=(HeldRegion((0,), (4,), (1,)),))), 3) is None


# --- whole tensors from parts ----------------------------------------------------------------------------------------


class SpoilingStore(TrappedStore):
    """Memory in which a byte of rank 1's part is another when rank 0 reads it back."""

    where = 0

    def stage_shared(self, name, attempt):
        inner, where = super().stage_shared(name, attempt), self.where

        class Spoiling(TrappedAttempt):
            def open(self, file):
                reader = inner.open(file)
                if file.startswith("part1"):
                    reader.map()[where] ^= 1
                return reader

        return Spoiling(inner, self.trap)


@pytest.mark.parametrize(("where", "what"), [(9, "its header"), (-1, "tensor ")])
def test_no_whole_tensor_is_made_of_a_part_that_was_damaged(root, where, what):
    def work(ranks):
        store = SpoilingStore(root)
        store.where = where
        with pytest.raises(ChunkMismatch, match=f"^rank 0 of 2: .*which holds {what}"):
            mc.save(store, {"own": np.arange(100) + ranks.rank}, step=1, coordinator=ranks, format="single_file")

    all_well(on_ranks(2, work))
    assert mc.list_checkpoints(root) == []
