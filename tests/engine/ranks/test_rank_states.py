"""What many ranks save in memory comes back, whatever they hold, however it is cut, stored, repeated or exchanged."""

import uuid
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.distributed.reading.test_exchange import Table
from tests.distributed.test_save_on_ranks import cut, marked
from tests.distributed.threads import all_well, on_ranks, save_all

import model_checkpoint as mc
from model_checkpoint.distributed import LocalCoordinator
from model_checkpoint.engine.root.rank_manifests import read_summary
from model_checkpoint.errors import OptionInvalid, StorageFailure
from model_checkpoint.manifest import decode
from model_checkpoint.storage.memory import InMemoryStore

FORMATS = list(mc.CheckpointFormat)


@pytest.fixture
def root(tmp_path):
    return f"memory://{tmp_path.name}"


def load_all(root, world, **options):
    return all_well(on_ranks(world, lambda c: mc.load(root, coordinator=c, **options)))


# --- cut arrays ------------------------------------------------------------------------------------------------------


@given(
    dtype=st.sampled_from(["float32", "int8", "complex64", "datetime64[s]", "S3", "bool"]),
    shape=st.tuples(st.integers(1, 7), st.integers(1, 5), st.integers(1, 3)),
    cuts=st.tuples(*[st.tuples(*[st.integers(1, 2)] * 3)] * 2),
    layout=st.sampled_from(FORMATS),
    level=st.sampled_from([mc.CompressionLevel.NONE, mc.CompressionLevel.FAST]),
    exchange=st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_an_array_cut_and_stored_in_any_way_comes_back_cut_in_any_other(dtype, shape, cuts, layout, level, exchange):
    root = f"memory://cut-{uuid.uuid4().hex}"
    whole = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    saved, wanted = (cut(shape, parts) for parts in cuts)
    state = [
        {"x": marked(whole, *box), "plain": whole, "own": whole[:1] if rank else 3} for rank, box in enumerate(saved)
    ]
    save_all(root, len(saved), lambda rank: state[rank], step=1, format=layout, compression=level)
    table, seen = Table(len(wanted)), []

    def load(ranks):
        if exchange:
            ranks.exchange = partial(table.exchange, ranks.rank)
        live = {"x": marked(np.zeros_like(whole), *wanted[ranks.rank]), "plain": np.zeros_like(whole)}
        listen = seen.append if ranks.rank == 0 else None
        mc.load(root, into=live, parts=["x", "plain"], coordinator=ranks, progress=listen)
        return live["x"].array.tobytes(), live["plain"].tobytes()

    loaded = all_well(on_ranks(len(wanted), load))
    for box, (part, plain) in zip(wanted, loaded, strict=True):
        assert part == marked(whole, *box).array.tobytes()
        assert plain == whole.tobytes()
    assert seen[-1].done == seen[-1].total > 0
    assert mc.load(root, parts="x")["x"].tobytes() == whole.tobytes()
    for rank in {0, len(saved) - 1}:
        own = mc.load(root, parts="own", per_rank=rank)["own"]
        assert own == 3 if rank == 0 else own.tobytes() == whole[:1].tobytes()
    assert mc.verify(root)[0].ok


def test_arrays_and_pieces_of_torch_keep_what_they_are(root):
    def state(rank):
        frozen = torch.nn.Parameter(torch.arange(4.0), requires_grad=False)
        return {
            "w": torch.nn.Parameter(torch.arange(6.0)),
            "frozen": frozen,
            "half": torch.ones(3, dtype=torch.bfloat16),
        }

    save_all(root, 2, state, step=1)

    for one in (*load_all(root, 2), mc.load(root)):
        assert one["half"].dtype is torch.bfloat16
        assert torch.equal(one["w"], state(0)["w"])
        assert (one["w"].requires_grad, one["frozen"].requires_grad) == (True, False)


@pytest.mark.parametrize("live", [True, False])
def test_of_arrays_in_pieces_only_live_ones_are_told_as_changed(root, live):
    whole = np.arange(12)
    save_all(root, 2, lambda rank: {"x": marked(whole, *cut((12,), (2,))[rank])}, step=1)
    ranks, changed = LocalCoordinator(), []

    @contextmanager
    def changing(touched):
        yield
        changed.append(touched())

    ranks.changing = changing
    mc.load(root, into={"x": np.zeros_like(whole)} if live else None, coordinator=ranks)

    assert (([], ["x"]) in changed) is live


# --- plain values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "states",
    [
        [[1, 2], [1, 3]],  # no dict: one part, which differs
        [[1, 2], [1, 2]],
        [{"a": 1, "b": {"c": [1, 2]}}, {"b": {"c": [1, 3]}, "a": 1}],
        [{"a": np.arange(3), "x": {"y": np.arange(4)}}, {"x": {"y": np.arange(4) + 1}, "a": np.arange(3)}],
        [{"only": np.arange(3)}, {"other": np.arange(3)}],
        [{1: "one"}, {1: "uno"}],
        [{}, {}],
        [5, 5],
    ],
)
@pytest.mark.parametrize("layout", FORMATS)
def test_whatever_ranks_hold_each_has_its_own_back(root, states, layout):
    save_all(root, 2, lambda rank: states[rank], step=1, format=layout)

    loaded = load_all(root, 2)

    assert [repr(one) for one in loaded] == [
        repr(one if not isinstance(one, dict) else {k: one[k] for k in back})
        for one, back in zip(states, loaded, strict=True)
    ]
    assert [one if not isinstance(one, dict) else sorted(map(str, one)) for one in loaded] == [
        one if not isinstance(one, dict) else sorted(map(str, one)) for one in states
    ]


@pytest.mark.parametrize("layout", FORMATS)
def test_arrays_of_one_name_that_differ_are_told_apart(root, layout):
    save_all(root, 3, lambda rank: {"own": np.full(4, rank // 2), "w": np.arange(5)}, step=1, format=layout)

    assert [one["own"].tolist() for one in load_all(root, 3)] == [[0] * 4, [0] * 4, [1] * 4]
    manifest = decode(InMemoryStore(root).read_manifest("step-00000001"), root)
    assert sorted(entry.nbytes for entry in manifest.entries) == [4 * 8, 4 * 8, 5 * 8]
    assert mc.verify(root)[0].ok


# --- one call --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "first", "other"),
    [
        ("step", 1, 2),
        ("name", "a", "b"),
        ("format", FORMATS[0], FORMATS[1]),
        ("compression", mc.CompressionLevel.NONE, mc.CompressionLevel.FAST),
        ("incremental", False, True),
        ("parity", "xor", "pq"),
    ],
)
def test_ranks_that_ask_for_something_else_are_named(root, key, first, other):
    def save(ranks):
        options = {"step": 1, key: other if ranks.rank == 2 else first}
        return mc.save(root, {"a": 1}, coordinator=ranks, **options)

    outcomes = on_ranks(3, save)

    assert [type(one) for one in outcomes] == [OptionInvalid] * 3
    assert all(str(one).startswith(f"rank 2 calls with {key}=") for one in outcomes)
    assert not InMemoryStore(root).exists()


def test_ranks_agree_on_a_name_that_none_of_them_gave(root):
    infos = save_all(root, 3, lambda rank: {"a": rank})

    assert len({(info.prefix, info.id) for info in infos}) == 1
    assert [info.prefix for info in mc.list_checkpoints(root)] == [infos[0].prefix]


def test_metrics_metadata_and_sizes_are_what_every_rank_is_told(root):
    infos = save_all(root, 2, lambda rank: {"w": np.arange(9)}, step=4, metrics={"loss": 0.5}, metadata={"by": "us"})

    (listed,) = mc.list_checkpoints(root)
    for info in infos:
        assert (info.step, info.metrics, info.metadata, info.world_size) == (4, {"loss": 0.5}, {"by": "us"}, 2)
        assert (info.size_bytes, info.id, info.timestamp) == (listed.size_bytes, listed.id, listed.timestamp)


def test_metadata_too_long_to_be_told_are_read_from_the_manifest(root, monkeypatch):
    monkeypatch.setattr("model_checkpoint.engine.ranks.words.LONGEST_WORD", 3000)
    noise = np.random.default_rng(3).bytes(4000).hex()

    infos = save_all(root, 2, lambda rank: {"a": 1}, step=1, metadata={"noise": noise})

    assert [info.metadata["noise"] == noise for info in infos] == [True, True]


@pytest.mark.parametrize("between", [True, False])
def test_ranks_build_on_what_ranks_saved_whoever_saved_since(tmp_path, between):
    frozen = np.arange(1 << 12)
    save_all(tmp_path, 2, lambda rank: {"frozen": frozen, "own": np.full(999, rank)}, step=1)
    if between:
        mc.save(tmp_path, {"frozen": frozen}, step=2)

    save_all(tmp_path, 2, lambda rank: {"frozen": frozen, "own": np.full(999, rank)}, step=3, incremental=True)

    newest = mc.list_checkpoints(tmp_path)[0]
    assert newest.shared_with == ("step-00000001",)
    assert [one["own"][0] for one in load_all(tmp_path, 2)] == [0, 1]


# --- loads -----------------------------------------------------------------------------------------------------------


class Failing(InMemoryStore):
    """Memory that gives one rank no data."""

    def open(self, name, file):
        if file.endswith(".safetensors"):
            raise StorageFailure("no answer", name, code=5)
        return super().open(name, file)


@pytest.mark.parametrize("odd", [0, 1])
def test_a_store_that_fails_one_rank_fails_the_load_of_all_alike(root, odd):
    mc.save(root, {"w": np.arange(9)}, step=1)
    live = [np.zeros(9, int) for _ in range(2)]

    def load(ranks):
        return mc.load(
            (Failing if ranks.rank == odd else InMemoryStore)(root), into={"w": live[ranks.rank]}, coordinator=ranks
        )

    outcomes = on_ranks(2, load)

    assert [type(one) for one in outcomes] == [StorageFailure] * 2
    assert len({str(one) for one in outcomes}) == 1
    assert str(outcomes[0]).startswith(f"rank {odd} of 2: ")


@pytest.mark.parametrize("per_rank", [-1, 1.5, True, "0"])
def test_whose_values_to_take_is_a_rank(root, per_rank):
    save_all(root, 2, lambda rank: {"own": rank}, step=1)

    with pytest.raises(OptionInvalid, match="expected a rank of the save, from 0 on"):
        mc.load(root, per_rank=per_rank)
    assert mc.load(root, per_rank=0)["own"] == 0
    assert [one["own"] for one in load_all(root, 3, per_rank=lambda rank: 1 if rank else 0)] == [0, 1, 1]


def test_ranks_fall_back_together_as_far_as_they_must_and_say_what_was_passed_over(root):
    for step in (1, 2, 3):
        save_all(root, 2, lambda rank, step=step: {"w": np.full(99, step)}, step=step)
    published = InMemoryStore(root)._bucket.published

    def spoil(step):
        files = published[f"step-0000000{step}"]
        for file in [file for file in files if file.endswith(".safetensors")]:
            del files[file]

    spoil(3), spoil(2)
    with pytest.warns(mc.CheckpointWarning, match="step-00000003") as told:
        loaded = load_all(root, 2, fallback=True)
    assert [one["w"][0] for one in loaded] == [1, 1]
    assert any("step-00000002" in str(one.message) for one in told)
    spoil(1)
    outcomes = on_ranks(2, lambda c: mc.load(root, coordinator=c, fallback=True))
    assert all(isinstance(one, mc.CheckpointException) for one in outcomes)


class Apart(InMemoryStore):
    """Memory that shows one rank no checkpoint, or another one than the others."""

    swap = None

    def read_manifest(self, name):
        if self.swap is None:
            raise mc.CheckpointNotFound("nothing there", name)
        return super().read_manifest(self.swap)


def test_a_rank_that_does_not_see_what_rank_0_loads_is_named(root):
    mc.save(root, {"w": np.arange(9)}, step=1)

    outcomes = on_ranks(2, lambda c: mc.load((Apart if c.rank else InMemoryStore)(root), coordinator=c))

    assert len({str(one) for one in outcomes}) == 1
    assert all(isinstance(one, mc.CheckpointException) for one in outcomes)
    assert "rank 0 loads this checkpoint, but it is not there on this rank" in str(outcomes[0])


# --- chunks ----------------------------------------------------------------------------------------------------------


def test_what_another_rank_handed_over_spoilt_is_read_from_the_store(root):
    mc.save(root, {"w": np.arange(5000)}, step=1)

    def spoil(rank, turn, buffers):
        for other, buffer in enumerate(buffers):
            if rank == 1 and other != rank and len(buffer):
                buffer[-1] ^= 1

    table = Table(2, spoil)

    def load(ranks):
        ranks.exchange = partial(table.exchange, ranks.rank)
        return mc.load(root, coordinator=ranks)["w"]

    assert all(np.array_equal(one, np.arange(5000)) for one in all_well(on_ranks(2, load)))
    assert table.turns == [1, 1]


def test_small_pieces_have_digests_of_their_parts_and_whole_tensors_have_none(root):
    whole = np.arange(600 << 10, dtype=np.uint8).reshape(2, -1)
    for step, layout in enumerate(FORMATS):
        save_all(root, 2, lambda rank: {"x": marked(whole, (rank, 0), (1, 300 << 10))}, step=step, format=layout)
        store, name = InMemoryStore(root), f"step-{step:08d}"
        files = read_summary(store, name, store.read_manifest(name)).files
        assert {any(record.subchunks) for record in files} == {layout is mc.CheckpointFormat.MULTI_SHARD}


# --- in the background -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("busy", ["wait", "queue"])
def test_saves_in_the_background_are_all_made_of_what_was_there_at_the_call(root, busy):
    def save(ranks):
        live, jobs = np.zeros(1000), []
        for step in range(3):
            live[:] = step
            jobs.append(mc.save_async(root, {"w": live, "own": ranks.rank}, step=step, coordinator=ranks, busy=busy))
        live[:] = -1
        return [job.result().step for job in jobs]

    assert all_well(on_ranks(2, save)) == [[0, 1, 2]] * 2
    for step in range(3):
        assert [(one["w"][0], one["own"]) for one in load_all(root, 2, step=step)] == [(step, 0), (step, 1)]


def test_what_one_rank_cannot_save_in_the_background_all_hear_at_the_call(root):
    outcomes = on_ranks(2, lambda c: mc.save_async(root, {"f": print if c.rank else 1}, step=1, coordinator=c))

    assert {type(one).__name__ for one in outcomes} == {"UnsupportedType"}
    assert all(str(one).startswith("rank 1 of 2: f: ") for one in outcomes)
    save_all(root, 2, lambda rank: {"a": 1}, step=1)
    outcomes = on_ranks(2, lambda c: mc.save_async(root, {"a": 2}, step=1, coordinator=c))
    assert [type(one).__name__ for one in outcomes] == ["StepExists"] * 2
