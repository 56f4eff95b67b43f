"""A slice is what `load` gives, indexed: of any view, dtype and framework, from as few chunks as hold it."""

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

import model_checkpoint as mc
from model_checkpoint import errors
from model_checkpoint.engine.reading.chunks import chunk_reader

_CHUNK = 4 << 20
_NUMPY = [
    "u1", "<i4", ">i4", "<f8", ">f8", "f2", "c16", ">c8", "?", "S3", "<U2", ">U2", "V3", "M8[us]",
    [("a", "<i2"), ("b", "<f4")], ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4,
]  # fmt: skip
_TORCH = [
    torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.complex128, torch.bool, torch.int16,
    torch.uint16,
]  # fmt: skip
_ROOM = 4096  # bytes of memory that views are taken of


def numpy_view(data):
    """Any strided array over the one memory, of any dtype, forwards or backwards, and that memory as any numbers."""
    base = np.arange(_ROOM, dtype=np.uint8).view()
    dtype = np.dtype(data.draw(st.sampled_from(_NUMPY)))
    if dtype == np.bool_:
        base &= 1
    typed = base[: _ROOM // dtype.itemsize * dtype.itemsize].view(dtype)
    view = typed[: 3 * 4 * 5 * data.draw(st.integers(1, 3))].reshape(3, 4, -1)
    view = view.transpose(data.draw(st.permutations(range(3))))
    index = data.draw(basic_indices(view.shape, allow_newaxis=False, allow_ellipsis=False))
    return base.view(data.draw(st.sampled_from(["u1", "<i2", "<f8", "<c16"]))), taken(view, index)


def taken(array, index):
    """What an index takes, as an array even if it is one element: a scalar would forget its byte order."""
    parts = index if isinstance(index, tuple) else (index,)
    return array[parts if ... in parts else (*parts, ...)]


def torch_view(data):
    """Any strided tensor over the one memory, of any dtype, also expanded, conjugated and negated."""
    base = torch.arange(_ROOM, dtype=torch.int32).to(torch.uint8)
    dtype = data.draw(st.sampled_from(_TORCH))
    if dtype is torch.bool:
        base &= 1
    view = base.view(dtype)[: 3 * 4 * 5].reshape(3, 4, 5).permute(data.draw(st.permutations(range(3))))
    for axis in range(3):
        view = view.narrow(axis, 0, data.draw(st.integers(0, view.shape[axis])))
    if data.draw(st.booleans()) and view.shape[0]:
        view = view[:1].expand(3, -1, -1)
    if dtype in (torch.complex64, torch.complex128) and data.draw(st.booleans()):
        view = view.conj() if data.draw(st.booleans()) else view.imag
    return base.view(data.draw(st.sampled_from([torch.uint8, torch.int16, torch.float64, torch.complex128]))), view


def same(a, b):
    if isinstance(a, torch.Tensor):
        assert isinstance(b, torch.Tensor)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        a, b = (one.contiguous().view(-1).resolve_conj().resolve_neg().clone().untyped_storage() for one in (a, b))
        return bytes(a) == bytes(b)
    a, b = np.asarray(a), np.asarray(b)
    return (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_slice_of_any_numpy_view_is_what_load_gives(data):
    base, view = numpy_view(data)
    keep = data.draw(st.sampled_from([("base", "view"), ("view",), ("view", "twin")]))
    state = {"base": base, "view": view, "twin": np.asarray(view)[...]}
    mc.save("memory://slices-numpy", {name: state[name] for name in keep}, step=1, overwrite=True)
    index = data.draw(basic_indices(np.shape(view), allow_newaxis=False))

    got = mc.load_slice("memory://slices-numpy", "view", index)

    assert same(got, taken(mc.load("memory://slices-numpy")["view"], index))


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_slice_of_any_torch_view_is_what_load_gives(data):
    base, view = torch_view(data)
    keep = data.draw(st.sampled_from([("base", "view"), ("view",), ("view", "twin")]))
    state = {"base": base, "view": view, "twin": view.detach()}
    mc.save("memory://slices-torch", {name: state[name] for name in keep}, step=1, overwrite=True)
    index = data.draw(basic_indices(view.shape, allow_newaxis=False).filter(_torch_takes))
    framework = data.draw(st.sampled_from([None, "numpy"]))

    got = mc.load_slice("memory://slices-torch", "view", index, framework=framework)

    assert same(got, taken(mc.load("memory://slices-torch", framework=framework)["view"], index))


def _torch_takes(index):
    parts = index if isinstance(index, tuple) else (index,)
    return all(not isinstance(part, slice) or part.step is None or part.step > 0 for part in parts)


def test_the_plain_views_people_keep_come_back_as_slices(tmp_path):
    b, f = torch.arange(16.0).reshape(4, 4), torch.arange(6.0)
    n = np.arange(10)
    state = {"b": b, "across": b.t(), "f": f, "bits": f.view(torch.int32), "n": n, "back": n[::-1], "few": n[2:7:2]}
    mc.save(tmp_path, state, step=1)

    for name, value in state.items():
        assert same(mc.load_slice(tmp_path, name, slice(1, 3)), value[1:3])


def test_a_slice_of_a_view_with_smaller_elements_than_its_array_is_what_load_gives(tmp_path):
    """Which begins and ends within elements of the stored array."""
    z, n = torch.complex(torch.arange(16.0), -torch.arange(16.0)).reshape(4, 4), np.arange(6, dtype=np.int32)
    state = {"z": z, "real": z.real, "imag": z.imag, "pairs": torch.view_as_real(z), "n": n, "halves": n.view(np.int16)}
    mc.save(tmp_path, state, step=1)

    for name in ("real", "imag", "pairs", "halves"):
        for index in ((), 1, slice(1, 3), slice(None, None, 2), (..., slice(1, None))):
            assert same(mc.load_slice(tmp_path, name, index), state[name][index])


def test_slices_of_jax_and_tensorflow_arrays_are_what_load_gives(tmp_path):
    jax, tensorflow = pytest.importorskip("jax"), pytest.importorskip("tensorflow")
    keys = jax.random.split(jax.random.key(3), 4)
    state = {
        "keys": keys,
        "j": jax.numpy.arange(12, dtype="bfloat16").reshape(3, 4),
        "t": tensorflow.reshape(tensorflow.range(12.0), (3, 4)),
        "v": tensorflow.Variable([1, 2, 3]),
        "bytes": bytes(range(200)) * 1000,
    }
    mc.save(tmp_path, state, step=1)
    loaded = mc.load(tmp_path)

    assert jax.numpy.array_equal(mc.load_slice(tmp_path, "keys", slice(1, 3)), loaded["keys"][1:3])
    assert mc.load_slice(tmp_path, "keys", 2).dtype == keys.dtype
    assert same(mc.load_slice(tmp_path, "keys", (0, 1), framework="numpy"), np.asarray(jax.random.key_data(keys))[0, 1])
    assert type(mc.load_slice(tmp_path, "j", np.s_[:, 2])) is type(loaded["j"])
    assert same(mc.load_slice(tmp_path, "j", np.s_[1:, 2]), loaded["j"][1:, 2])
    assert same(mc.load_slice(tmp_path, "t", np.s_[..., -1]), loaded["t"][..., -1])
    assert same(mc.load_slice(tmp_path, "v", 1), loaded["v"][1])
    assert mc.load_slice(tmp_path, "bytes", slice(5, 9)) == loaded["bytes"][5:9]
    assert mc.load_slice(tmp_path, "bytes", 7) == loaded["bytes"][7]


@pytest.fixture
def chunks_read(monkeypatch):
    """The numbers of the chunks that are read, headers apart."""
    seen = []
    read = chunk_reader.ChunkReader.read_chunks

    def noted(self, reads, *args, **options):
        seen.extend(one.chunk for one in reads)
        return read(self, reads, *args, **options)

    monkeypatch.setattr(chunk_reader.ChunkReader, "read_chunks", noted)
    return seen


def test_a_slice_reads_no_chunk_without_an_element_of_it(tmp_path, chunks_read):
    wide = np.arange(6 * 2 * _CHUNK, dtype=np.uint8).reshape(6, 2 * _CHUNK)  # twelve chunks, two to a row
    mc.save(tmp_path, {"wide": wide, "across": wide.T}, step=1)

    column = mc.load_slice(tmp_path, "wide", np.s_[:, 5])
    assert (column.tolist(), chunks_read) == (wide[:, 5].tolist(), [1, 3, 5, 7, 9, 11])

    chunks_read.clear()
    row = mc.load_slice(tmp_path, "across", np.s_[-3:, 1::3])
    assert (row.tolist(), chunks_read) == (wide.T[-3:, 1::3].tolist(), [4, 10])

    chunks_read.clear()
    assert mc.load_slice(tmp_path, "across", np.s_[2:2]).shape == (0, 6)
    assert chunks_read == []


def test_an_index_the_tensor_does_not_have_is_a_typed_index_error(tmp_path):
    mc.save(tmp_path, {"w": np.zeros((2, 3))}, step=1)

    for index, why in ((2, "out of range"), ((0, 0, 0), "too many parts"), (None, "only whole numbers")):
        with pytest.raises(errors.IndexInvalid, match=why) as caught:
            mc.load_slice(tmp_path, "w", index)
        assert isinstance(caught.value, IndexError)


@pytest.mark.parametrize(
    "index",
    [
        np.array([1, 2]), np.array([1]), np.array([True, False]), np.array(True), np.True_, True, [0, 1], 1.0, "a",
        torch.tensor([1, 2]), torch.tensor([1]), torch.tensor(True), np.s_[0.5:], np.s_[::0], (0, np.array([1])),
    ],
    ids=repr,
)  # fmt: skip
def test_an_index_by_a_list_or_a_mask_is_refused_with_the_way_round(tmp_path, index):
    """It would be another array than the caller means, or an error of the library the index comes from."""
    mc.save(tmp_path, {"w": np.zeros((2, 3))}, step=1)

    with pytest.raises(errors.IndexInvalid, match=r"only whole numbers, slices and one ellipsis.*; load it and index"):
        mc.load_slice(tmp_path, "w", index)


@pytest.mark.parametrize("index", [np.int64(1), np.array(1), torch.tensor(1), np.s_[np.int8(1) :]], ids=repr)
def test_an_index_by_a_number_of_a_library_is_that_number(tmp_path, index):
    saved = np.arange(6).reshape(2, 3)
    mc.save(tmp_path, {"w": saved}, step=1)

    assert mc.load_slice(tmp_path, "w", index).tolist() == saved[index].tolist()
