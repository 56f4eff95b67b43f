"""A compressed checkpoint is smaller, and in every other way like any other."""

import errno

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from tests.ground.stored.stored_files import data_file, flip, folder, manifest_of

import model_checkpoint as mc
from model_checkpoint import CompressionLevel, errors
from model_checkpoint.manifest import encode
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls

LEVELS = [level for level in CompressionLevel if level is not CompressionLevel.NONE]
FAST = CompressionLevel.FAST
MIB = 1 << 20

NUMPY_DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "longdouble"),
    *(">f4", ">i8", "M8[ns]", "m8[s]", "S7", "U5", [("a", "i4"), ("b", "f8")]),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu),
]
TORCH_DTYPES = [
    *(torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    *(torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.bool),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
]


def weights(count, seed=0):
    return (np.random.default_rng(seed).standard_normal(count) * 0.02).astype(np.float32)


def noise(dtype, count=3001):
    """Any bytes at all, NaN payloads included, but only truth values a bool may have."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.random.default_rng(1).integers(0, 2, count).astype(bool)
    if dtype.kind == "U":
        return np.array([chr(65 + i % 50) * (i % 6) for i in range(count)], dtype)
    return np.frombuffer(np.random.default_rng(1).integers(0, 9, count * dtype.itemsize, np.uint8).tobytes(), dtype)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
def test_every_numpy_dtype_comes_back_bit_for_bit(tmp_path, dtype):
    state = {"x": noise(dtype), "empty": noise(dtype)[:0], "one": noise(dtype)[5:6].reshape(())}

    mc.save(tmp_path, state, step=1, compression=FAST)
    back = mc.load(tmp_path, verify="full")

    for name, array in state.items():
        assert back[name].dtype == array.dtype
        assert back[name].shape == array.shape
        assert back[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_every_torch_dtype_comes_back_bit_for_bit(tmp_path, dtype):
    size = torch.empty((), dtype=dtype).element_size()
    high = 2 if dtype is torch.bool else 256
    tensor = torch.randint(0, high, (2048 * size,), dtype=torch.uint8).view(dtype)

    mc.save(tmp_path, {"x": tensor}, step=1, compression=FAST)
    back = mc.load(tmp_path)["x"]

    assert back.dtype == dtype
    assert torch.equal(back.view(torch.uint8), tensor.view(torch.uint8))


@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=12),
    dtypes=st.lists(st.sampled_from(["u1", "f2", "f4", "f8", "c16", "i8"]), min_size=1),
    span=st.integers(1, 256),
)
@settings(max_examples=40, deadline=None)
def test_any_mixture_of_arrays_comes_back(seed, sizes, dtypes, span):
    rng = np.random.default_rng(seed)
    state = {}
    for i, size in enumerate(sizes):
        dtype = np.dtype(dtypes[i % len(dtypes)])
        state[str(i)] = rng.integers(0, span, size * dtype.itemsize, np.uint8).view(dtype)
    root = f"memory://compress-{seed}-{len(sizes)}"

    mc.save(root, state, step=1, overwrite=True, compression=FAST)
    back = mc.load(root)

    assert {name: array.tobytes() for name, array in back.items()} == {n: a.tobytes() for n, a in state.items()}


@pytest.mark.parametrize("level", LEVELS)
def test_normal_weights_take_at_most_the_promised_room(tmp_path, level):
    single = weights(4 * MIB)
    half = single.astype(ml_dtypes.bfloat16)

    info_half = mc.save(tmp_path / "half", {"w": half}, step=1, compression=level)
    info_single = mc.save(tmp_path / "single", {"w": single}, step=1, compression=level)

    assert info_half.size_bytes <= 0.70 * half.nbytes
    assert info_single.size_bytes <= 0.86 * single.nbytes
    assert mc.load(tmp_path / "half")["w"].tobytes() == half.tobytes()
    assert mc.load(tmp_path / "single")["w"].tobytes() == single.tobytes()


@pytest.mark.parametrize("level", LEVELS)
def test_what_cannot_shrink_does_not_grow(tmp_path, level):
    state = {"noise": np.frombuffer(np.random.default_rng(0).bytes(9 * MIB), np.uint8), "few": np.arange(3)}

    plain = mc.save(tmp_path / "plain", state, step=1)
    compressed = mc.save(tmp_path / "compressed", state, step=1, compression=level)

    assert compressed.size_bytes <= 1.001 * plain.size_bytes
    assert np.array_equal(mc.load(tmp_path / "compressed")["noise"], state["noise"])


def test_the_level_is_recorded_and_an_older_reader_is_warned_by_a_feature(tmp_path):
    mc.save(tmp_path, {"w": weights(MIB)}, step=1, compression=CompressionLevel.BALANCED)
    mc.save(tmp_path, {"w": weights(MIB)}, step=2)

    compressed, plain = manifest_of(tmp_path, 1), manifest_of(tmp_path, 2)

    assert (compressed.compression, compressed.features) == ("balanced", ("planes-zstd",))
    assert (plain.compression, plain.features) == ("none", ())


def test_a_compressed_file_is_valid_safetensors_whose_tensors_are_the_chunks(tmp_path):
    mc.save(tmp_path, {"w": weights(3 * MIB), "b": np.zeros(10)}, step=1, compression=FAST)

    with safe_open(data_file(tmp_path), "np") as file:
        names = list(file.keys())
        sizes = [len(file.get_tensor(name)) for name in names]

    frames = manifest_of(tmp_path).files[0].frames[1:]
    assert sorted(names) == [f"c{i:05d}" for i in range(1, len(frames) + 1)]
    assert sum(sizes) == sum(frame.stop - frame.start for frame in frames)


def test_the_same_state_gives_the_same_bytes_whatever_the_workers_do(tmp_path):
    state = {str(i): weights(MIB + 77 * i, seed=i) for i in range(12)}
    bodies = []
    for i in range(3):
        mc.save(tmp_path / str(i), state, step=1, compression=FAST)
        record = manifest_of(tmp_path / str(i)).files[0]
        bodies.append(data_file(tmp_path / str(i)).read_bytes()[record.ends[0] :])

    assert bodies[0] == bodies[1] == bodies[2]


def test_slices_maps_and_parts_of_a_compressed_checkpoint(tmp_path):
    state = {"w": weights(3 * MIB).reshape(-1, 512), "b": np.arange(1000)}
    mc.save(tmp_path, state, step=1, compression=FAST)

    rows = mc.load_slice(tmp_path, "w", np.s_[4000:4100, 3:9])
    mapped = mc.load(tmp_path, mmap=True)
    part = mc.load(tmp_path, parts="b")

    assert np.array_equal(rows, state["w"][4000:4100, 3:9])
    assert np.array_equal(mapped["w"], state["w"])
    mapped["w"][0, 0] = 7  # a copy, so it may be written to
    assert np.array_equal(part["b"], state["b"])
    assert np.array_equal(mc.load(tmp_path)["w"], state["w"])


def test_a_map_without_verification_still_unpacks_only_sound_frames(tmp_path):
    mc.save(tmp_path, {"w": weights(MIB)}, step=1, compression=FAST)
    path = data_file(tmp_path)
    flip(path, path.stat().st_size // 2)

    with pytest.raises(errors.ChunkMismatch, match=r"chunk 1 .*holds tensor w"):
        mc.load(tmp_path, mmap=True, verify="off")


def test_a_live_model_is_filled_from_a_compressed_checkpoint(tmp_path):
    model = torch.nn.Linear(300, 200)
    mc.save(tmp_path, {"model": model}, step=1, compression=FAST)
    other = torch.nn.Linear(300, 200)

    mc.load(tmp_path, into={"model": other})

    assert torch.equal(model.weight, other.weight)


def test_compressed_and_plain_checkpoints_of_one_state_do_not_differ(tmp_path):
    state = {"w": weights(2 * MIB), "b": weights(100)}
    mc.save(tmp_path, state, step=1)
    mc.save(tmp_path, state, step=2, compression=FAST)

    found = mc.diff(f"{tmp_path}@1", f"{tmp_path}@2")

    assert (found.changed, found.unchanged) == ([], 2)
    assert found.b.size_bytes < found.a.size_bytes


def test_a_consolidated_model_stays_readable_for_other_tools(tmp_path):
    state = {"model": {"w": weights(MIB)}, "rest": weights(MIB, seed=1)}

    mc.save(tmp_path, state, step=1, format=mc.CheckpointFormat.CONSOLIDATED, compression=FAST)

    with safe_open(next(folder(tmp_path).glob("model-*.safetensors")), "np") as file:
        assert np.array_equal(file.get_tensor("w"), state["model"]["w"])
    compressed = [bool(record.frames) for record in manifest_of(tmp_path).files]
    assert compressed == [False, True]
    assert np.array_equal(mc.load(tmp_path)["rest"], state["rest"])


def test_overwriting_a_compressed_checkpoint(tmp_path):
    mc.save(tmp_path, {"w": weights(MIB)}, step=1, compression=FAST)

    mc.save(tmp_path, {"w": weights(MIB, seed=1)}, step=1, overwrite=True, compression=FAST)

    assert np.array_equal(mc.load(tmp_path)["w"], weights(MIB, seed=1))
    assert len(list(folder(tmp_path).iterdir())) == 2


SMALL = {"w": (np.arange(500, dtype=np.float32) % 17), "b": np.arange(7, dtype=np.int8), "epoch": 3}


@pytest.mark.slow
def test_every_flipped_bit_of_a_compressed_file_is_refused_with_its_address(tmp_path):
    mc.save(tmp_path, SMALL, step=1, compression=FAST)
    path = data_file(tmp_path)
    good = path.read_bytes()
    assert [frame.codec for frame in manifest_of(tmp_path).files[0].frames] == ["raw", "planes-zstd"]

    for bit in range(len(good) * 8):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(damaged)
        with pytest.raises(errors.CorruptedCheckpoint, match="step-00000001") as caught:
            mc.load(tmp_path)
        assert caught.value.file == path.name
        assert caught.value.chunk == (0 if bit < 4096 * 8 else 1)


def test_every_truncation_and_extension_of_a_compressed_file_is_refused(tmp_path):
    mc.save(tmp_path, SMALL, step=1, compression=FAST)
    path = data_file(tmp_path)
    good = path.read_bytes()

    for length in range(0, len(good), 101):
        path.write_bytes(good[:length])
        with pytest.raises(errors.Truncated, match="step-00000001"):
            mc.load(tmp_path)
    path.write_bytes(good + b"\0")
    with pytest.raises(errors.TrailingData, match="step-00000001"):
        mc.load(tmp_path)


def test_verify_names_the_damaged_chunks_of_a_compressed_file(tmp_path):
    mc.save(tmp_path, {"a": weights(2 * MIB), "b": weights(2 * MIB, seed=1)}, step=1, compression=FAST)
    path = data_file(tmp_path)
    flip(path, 5000, -1)

    (health,) = mc.verify(tmp_path)

    assert [(damage.chunk, list(damage.tensors)) for damage in health.damage] == [(1, ["a"]), (4, ["b"])]


def test_a_manifest_whose_frame_lies_about_its_packing_is_refused(tmp_path):
    """Even with right digests of the stored bytes, nothing wrong is ever unpacked into the state."""
    mc.save(tmp_path, SMALL, step=1, compression=FAST)
    manifest = manifest_of(tmp_path)
    frames = list(manifest.files[0].frames)
    frames[1] = type(frames[1])(frames[1].start, frames[1].stop, frames[1].codec, 3, frames[1].xxh3)
    record = type(manifest.files[0])(**{**as_fields(manifest.files[0]), "frames": tuple(frames)})
    lying = type(manifest)(**{**as_fields(manifest), "files": (record,)})
    (folder(tmp_path) / "manifest.json").write_bytes(encode(lying))

    with pytest.raises(errors.ChunkMismatch, match="does not have the recorded digest"):
        mc.load(tmp_path)


def as_fields(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


class SmallDisk(Syscalls):
    """A system whose disk is full after a few writes."""

    def __init__(self, writes):
        super().__init__()
        self.left = writes

    def pwrite(self, fd, data, offset):
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().pwrite(fd, data, offset)


@pytest.mark.parametrize("writes", [1, 2, 3, 5, 8])
def test_a_failing_write_stops_all_workers_and_leaves_nothing(tmp_path, writes):
    """Workers that wait for the chunk of a failed one must not wait for ever."""
    state = {str(i): weights(MIB, seed=i) for i in range(16)}
    disk = SmallDisk(writes)

    with pytest.raises(errors.DiskFull, match=r"could not write .*disk is full"):
        mc.save(LocalStore(tmp_path, calls=disk), state, step=1, compression=FAST)

    assert mc.list_checkpoints(tmp_path) == []


def test_an_unknown_level_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="extreme"):
        mc.save(tmp_path / "root", {"w": weights(10)}, step=1, compression="extreme")

    assert not (tmp_path / "root").exists()
