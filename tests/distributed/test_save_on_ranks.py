"""Many ranks save one checkpoint: what they hold alike once, what differs for each, what is cut as one array."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.distributed.threads import all_well, on_ranks, save_all, told
from tests.ground.stored.stored_files import flip

import model_checkpoint as mc
from model_checkpoint.distributed import LocalCoordinator, NeedsCoordinator, RankLost, Shard
from model_checkpoint.errors import ChunkMismatch, OptionInvalid, StepExists, StructureMismatch
from model_checkpoint.manifest import decode

BIG = np.arange(3 << 20, dtype=np.uint8)


def test_what_all_ranks_hold_is_stored_once_and_written_by_all(tmp_path):
    infos = save_all(tmp_path, 3, lambda rank: {"w": BIG, "epoch": 3}, step=1)

    assert {info.id for info in infos} == {infos[0].id}
    assert (infos[0].world_size, infos[2].step) == (3, 1)
    assert BIG.nbytes <= infos[0].size_bytes < BIG.nbytes + 20_000
    sizes = [file.stat().st_size for file in (tmp_path / "checkpoints/step-00000001").glob("r*-0-*.safetensors")]
    assert len(sizes) == 3
    assert max(sizes) < 1.1 * min(sizes)
    assert list((tmp_path / ".staging").iterdir()) == []
    state = mc.load(tmp_path)
    assert np.array_equal(state["w"], BIG)
    assert state["epoch"] == 3


def test_what_differs_comes_back_to_the_rank_it_is_of(tmp_path):
    save_all(tmp_path, 3, lambda rank: {"seed": rank, "at": np.arange(rank, rank + 4), "same": (1, 2.5)}, step=1)

    loaded = all_well(on_ranks(3, lambda c: mc.load(tmp_path, coordinator=c)))

    assert [(one["seed"], one["at"].tolist(), one["same"]) for one in loaded] == [
        (rank, list(range(rank, rank + 4)), (1, 2.5)) for rank in range(3)
    ]


def test_values_of_single_ranks_need_a_word_at_another_world_size(tmp_path):
    save_all(tmp_path, 3, lambda rank: {"seed": rank, "w": BIG}, step=1)

    with pytest.raises(StructureMismatch, match=r"^seed: the 3 ranks .*per_rank="):
        mc.load(tmp_path)
    with pytest.raises(StructureMismatch, match="gives rank 7, but 3 ranks saved"):
        mc.load(tmp_path, per_rank=7)

    assert mc.load(tmp_path, per_rank=2)["seed"] == 2
    assert np.array_equal(mc.load(tmp_path, parts="w")["w"], BIG)
    two = all_well(on_ranks(2, lambda c: mc.load(tmp_path, coordinator=c, per_rank=lambda rank: rank + 1)))
    assert [one["seed"] for one in two] == [1, 2]


def test_a_part_that_only_one_rank_has_goes_to_whoever_asks(tmp_path):
    save_all(tmp_path, 2, lambda rank: {"w": BIG} | ({"layer1": np.arange(5)} if rank else {}), step=1)

    again = all_well(on_ranks(2, lambda c: mc.load(tmp_path, coordinator=c)))
    alone = mc.load(tmp_path)

    assert [sorted(one) for one in again] == [["w"], ["layer1", "w"]]
    assert alone["layer1"].tolist() == [0, 1, 2, 3, 4]


def cut(shape, parts):
    """Boxes of ``parts`` cuts along each dimension, in order."""
    sides = [np.array_split(range(side), min(part, side)) for side, part in zip(shape, parts, strict=True)]
    boxes = [[]]
    for rows in sides:
        boxes = [[*box, (row[0], len(row))] for box in boxes for row in rows]
    return [(tuple(start for start, _ in box), tuple(size for _, size in box)) for box in boxes]


def marked(whole, offsets, sizes):
    part = whole[tuple(slice(a, a + n) for a, n in zip(offsets, sizes, strict=True))].copy()
    return Shard(part, global_shape=whole.shape, offsets=offsets)


@given(
    st.sampled_from(["float32", "int8", "complex128", "datetime64[s]", "float16"]),
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 3)),
    st.tuples(*[st.integers(1, 3)] * 3),
    st.tuples(*[st.integers(1, 3)] * 3),
    st.sampled_from([mc.CompressionLevel.NONE, mc.CompressionLevel.FAST]),
)
@settings(max_examples=25, deadline=None)
def test_an_array_cut_in_any_way_comes_back_cut_in_any_other(tmp_path_factory, dtype, shape, before, after, level):
    root = tmp_path_factory.mktemp("cut")
    whole = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    saved, wanted = cut(shape, before), cut(shape, after)

    save_all(root, len(saved), lambda rank: {"x": marked(whole, *saved[rank])}, step=1, compression=level)

    def load(coordinator):
        live = {"x": marked(np.zeros_like(whole), *wanted[coordinator.rank])}
        mc.load(root, into=live, coordinator=coordinator)
        return live["x"].array

    for array, box in zip(all_well(on_ranks(len(wanted), load)), wanted, strict=True):
        assert array.tobytes() == marked(whole, *box).array.tobytes()
    assert mc.load(root)["x"].tobytes() == whole.tobytes()
    assert mc.verify(root)[0].ok


def test_parts_that_do_not_make_up_an_array_are_refused_on_all_ranks(tmp_path):
    whole = np.arange(12.0).reshape(4, 3)
    boxes = [((0, 0), (2, 3)), ((1, 0), (2, 3))]

    outcomes = on_ranks(2, lambda c: mc.save(tmp_path, {"x": marked(whole, *boxes[c.rank])}, step=1, coordinator=c))

    assert [type(one) for one in outcomes] == [StructureMismatch] * 2
    assert all("x: the parts that the ranks marked" in str(one) for one in outcomes)
    assert not list((tmp_path / "checkpoints").iterdir())


def test_a_taken_name_is_told_to_all_ranks_before_anything_is_written(tmp_path):
    save_all(tmp_path, 2, lambda rank: {"a": 1}, step=1)

    outcomes = on_ranks(2, lambda c: mc.save(tmp_path, {"a": 2}, step=1, coordinator=c))

    assert [type(one) for one in outcomes] == [StepExists] * 2
    assert mc.load(tmp_path)["a"] == 1


def test_a_checkpoint_of_many_ranks_is_replaced_in_one_step(tmp_path):
    save_all(tmp_path, 2, lambda rank: {"w": BIG, "own": rank}, step=1)

    save_all(tmp_path, 3, lambda rank: {"w": BIG + 1, "own": rank}, step=1, overwrite=True)

    assert np.array_equal(mc.load(tmp_path, per_rank=0)["w"], BIG + 1)
    names = [file.name for file in (tmp_path / "checkpoints/step-00000001").iterdir()]
    assert len(names) == 1 + 2 * 3
    assert mc.verify(tmp_path)[0].ok


def test_one_process_and_many_replace_each_others_checkpoints(tmp_path):
    save_all(tmp_path, 2, lambda rank: {"w": BIG, "own": rank}, step=1)
    mc.save(tmp_path, {"w": BIG + 2}, step=1, overwrite=True)
    assert np.array_equal(mc.load(tmp_path)["w"], BIG + 2)
    assert sorted(file.name[:2] for file in (tmp_path / "checkpoints/step-00000001").iterdir()) == ["ma", "r0"]

    save_all(tmp_path, 2, lambda rank: {"w": BIG + 3}, step=1, overwrite=True)

    assert np.array_equal(mc.load(tmp_path)["w"], BIG + 3)


def test_ranks_that_ask_for_different_steps_are_told_so(tmp_path):
    outcomes = on_ranks(2, lambda c: mc.save(tmp_path, {"a": 1}, step=c.rank, coordinator=c))

    assert [type(one) for one in outcomes] == [OptionInvalid] * 2
    assert all("rank 1 calls with step=1, rank 0 with 0" in str(one) for one in outcomes)


def test_a_value_that_one_rank_cannot_save_is_raised_on_all_and_names_the_rank(tmp_path):
    outcomes = on_ranks(3, lambda c: mc.save(tmp_path, {"f": print if c.rank == 2 else 1}, step=1, coordinator=c))

    assert {type(one).__name__ for one in outcomes} == {"UnsupportedType"}
    assert all(str(one).startswith("rank 2 of 3: f: ") for one in outcomes)


def test_a_rank_that_never_comes_is_named_within_the_patience(tmp_path):
    def save(coordinator):
        return None if coordinator.rank == 1 else mc.save(tmp_path, {"a": 1}, step=1, coordinator=coordinator)

    outcomes = on_ranks(3, save, patience=0.5)

    assert [type(one) for one in outcomes] == [RankLost, type(None), RankLost]
    assert all("rank 1 of 3 gave no sign" in str(one) for one in (outcomes[0], outcomes[2]))


def test_parts_of_arrays_without_a_coordinator_are_refused_by_name(tmp_path):
    part = Shard(np.zeros((2, 3)), global_shape=(4, 3), offsets=(0, 0))

    with pytest.raises(NeedsCoordinator, match=r"x lie on many ranks.*coordinator="):
        mc.save(tmp_path, {"x": part}, step=1)
    mc.save(tmp_path, {"x": np.zeros((4, 3))}, step=1)
    with pytest.raises(NeedsCoordinator, match=r"x lie on many ranks.*coordinator="):
        mc.load(tmp_path, into={"x": part})


def test_what_one_process_saved_is_loaded_in_parts(tmp_path):
    whole = np.arange(24.0).reshape(6, 4)
    mc.save(tmp_path, {"x": whole, "n": 5}, step=1)

    def load(coordinator):
        live = {"x": marked(np.zeros_like(whole), (2 * coordinator.rank, 1), (2, 3)), "n": 0}
        mc.load(tmp_path, into=live, coordinator=coordinator)
        return live["x"].array.tolist(), live["n"]

    assert all_well(on_ranks(3, load)) == [(whole[2 * r : 2 * r + 2, 1:].tolist(), 5) for r in range(3)]


def test_a_load_that_fails_on_one_rank_changes_nothing_on_any(tmp_path):
    save_all(tmp_path, 2, lambda rank: {"w": BIG}, step=1)

    def load(coordinator):
        live = {"w": np.zeros_like(BIG) if coordinator.rank == 0 else np.zeros(7, np.uint8)}
        try:
            mc.load(tmp_path, into=live, coordinator=coordinator)
        except StructureMismatch as error:
            return str(error), int(live["w"].sum())
        return None

    outcomes = all_well(on_ranks(2, load))
    assert all("saved [3145728], live [7]" in text and changed == 0 for text, changed in outcomes)


@pytest.mark.parametrize("fallback", [False, True])
def test_a_load_that_one_rank_cannot_even_ask_for_is_one_error_on_all(tmp_path, fallback):
    """An option that only one rank got wrong, or a root that only one rank cannot name."""
    save_all(tmp_path, 3, lambda rank: {"seed": rank}, step=1)

    def bad_option(ranks):
        return mc.load(tmp_path, coordinator=ranks, per_rank=-1 if ranks.rank == 1 else None, fallback=fallback)

    def bad_root(ranks):
        return mc.load("ftp://nowhere/runs" if ranks.rank == 2 else tmp_path, coordinator=ranks, fallback=fallback)

    option, root = told(on_ranks(3, bad_option)), told(on_ranks(3, bad_root))

    assert type(option) is OptionInvalid
    assert str(option).startswith("rank 1 of 3: per_rank= gives -1 for rank 1")
    assert str(root).startswith("rank 2 of 3: ")


def test_a_rank_that_is_interrupted_before_it_asks_is_named_by_the_others(tmp_path):
    save_all(tmp_path, 3, lambda rank: {"seed": rank}, step=1)

    def interrupted(rank):
        raise KeyboardInterrupt

    outcomes = on_ranks(3, lambda c: mc.load(tmp_path, coordinator=c, per_rank=interrupted if c.rank == 1 else None))

    assert isinstance(outcomes.pop(1), KeyboardInterrupt)
    assert str(told(outcomes)).startswith("rank 1 of 3: KeyboardInterrupt")


def test_damage_that_one_rank_meets_lets_all_fall_back_together(tmp_path):
    for step in (1, 2):
        save_all(tmp_path, 2, lambda rank, step=step: {"w": BIG + step}, step=step)
    file = next((tmp_path / "checkpoints/step-00000002").glob("r1-0-*.safetensors"))
    flip(file)

    with pytest.warns(mc.CheckpointWarning, match="ChunkMismatch"):
        loaded = on_ranks(2, lambda c: mc.load(tmp_path, coordinator=c, fallback=True))
    refused = on_ranks(2, lambda c: mc.load(tmp_path, coordinator=c))

    assert all(np.array_equal(one["w"], BIG + 1) for one in all_well(loaded))
    assert [type(one) for one in refused] == [ChunkMismatch] * 2


def test_only_what_a_rank_wants_is_read(tmp_path):
    """Rows 0 to 3 of 64, a megabyte each: the chunks around them and nothing else."""
    whole = np.arange(64 << 20, dtype=np.uint8).reshape(64, 1 << 20)
    save_all(tmp_path, 2, lambda rank: {"x": marked(whole, (32 * rank, 0), (32, 1 << 20))}, step=1)
    seen = []

    def load(coordinator):
        live = {"x": marked(np.zeros_like(whole), (3 + 8 * coordinator.rank, 0), (4, 1 << 20))}
        listen = seen.append if coordinator.rank == 0 else None
        mc.load(tmp_path, into=live, coordinator=coordinator, progress=listen)
        return np.array_equal(live["x"].array, whole[3 + 8 * coordinator.rank :][:4])

    assert all_well(on_ranks(2, load)) == [True, True]
    assert seen[-1].done <= (4 << 20) + 2 * (4 << 20)


def test_only_the_manifests_of_ranks_that_wrote_what_is_wanted_are_read(tmp_path):
    whole = np.arange(40.0).reshape(20, 2)
    save_all(tmp_path, 10, lambda rank: {"x": marked(whole, (2 * rank, 0), (2, 2)), "same": np.arange(7)}, step=1)
    next((tmp_path / "checkpoints/step-00000001").glob("rank-9-*.json")).unlink()

    def load(coordinator, first):
        live = {"x": marked(np.zeros_like(whole), (first + coordinator.rank, 0), (3, 2))}
        mc.load(tmp_path, into=live, parts="x", coordinator=coordinator)
        return live["x"].array.tolist()

    assert all_well(on_ranks(2, lambda c: load(c, 2))) == [whole[2:5].tolist(), whole[3:6].tolist()]
    assert all(isinstance(one, mc.CheckpointException) for one in on_ranks(2, lambda c: load(c, 16)))


def test_looking_at_a_checkpoint_of_many_ranks_needs_no_ranks(tmp_path):
    for step in (1, 2):
        save_all(tmp_path, 2, lambda rank, step=step: {"w": BIG + step, "seed": rank, "same": np.arange(3)}, step=step)

    described = mc.describe(tmp_path)
    changes = mc.diff(f"{tmp_path}@1", f"{tmp_path}@2")

    assert described.info.size_bytes == mc.list_checkpoints(tmp_path)[0].size_bytes
    assert [line.name for line in described.tensors] == ["w", "same"]
    assert [change.name for change in changes.changed] == ["w"]
    assert np.array_equal(mc.load_slice(tmp_path, "w", np.s_[1 << 20 : 2 << 20 : 3]), (BIG + 2)[1 << 20 : 2 << 20 : 3])


def test_a_damaged_rank_manifest_is_told_and_never_believed(tmp_path):
    save_all(tmp_path, 2, lambda rank: {"w": BIG}, step=1)
    file = next((tmp_path / "checkpoints/step-00000001").glob("rank-1-*.json"))
    text = file.read_text().replace('"rank":1', '"rank":0')
    file.write_text(text)

    with pytest.raises(mc.CheckpointException, match="the manifest of this rank cannot be used, its digest is"):
        mc.load(tmp_path)
    assert not mc.verify(tmp_path)[0].ok


def test_a_reader_that_knows_no_ranks_refuses_by_name(tmp_path):
    save_all(tmp_path, 2, lambda rank: {"w": BIG, "seed": rank}, step=1)

    manifest = decode((tmp_path / "checkpoints/step-00000001/manifest.json").read_bytes(), "here")

    assert "ranks" in manifest.features
    assert len(manifest.ranks) == manifest.world_size == 2
    assert json.loads((tmp_path / "checkpoints/step-00000001" / manifest.ranks[1].name).read_text())["rank"] == 1


def test_one_rank_alone_saves_as_one_process_does(tmp_path):
    info = mc.save(tmp_path, {"a": np.arange(3)}, step=1, coordinator=LocalCoordinator())

    assert info.world_size == 1
    assert mc.load(tmp_path, coordinator=LocalCoordinator())["a"].tolist() == [0, 1, 2]


def test_a_mesh_of_one_rank_is_saved_and_loaded_like_any_other(tmp_path):
    whole, one = np.arange(12.0).reshape(4, 3), LocalCoordinator()
    mc.save(tmp_path, {"x": marked(whole, (0, 0), (4, 3))}, step=1, coordinator=one)
    mc.save_async(tmp_path, {"x": marked(whole + 1, (0, 0), (4, 3))}, step=2, coordinator=one).result()

    live = {"x": marked(np.zeros_like(whole), (0, 0), (4, 3))}
    mc.load(tmp_path, into=live, coordinator=one)

    assert np.array_equal(live["x"].array, whole + 1)
    assert np.array_equal(mc.load(tmp_path, step=1)["x"], whole)


def test_threads_save_together_to_memory(tmp_path):
    save_all("memory://ranks", 3, lambda rank: {"w": BIG, "seed": rank}, step=1)
    outcomes = on_ranks(2, lambda c: mc.save("memory://ranks", {"w": 1 if c.rank else print}, step=2, coordinator=c))

    assert {type(one).__name__ for one in outcomes} == {"UnsupportedType"}
    assert np.array_equal(mc.load("memory://ranks", per_rank=1)["w"], BIG)
