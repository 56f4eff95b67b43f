"""Every dtype, every layout, and memory that is shared."""

import json
import struct

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors import safe_open
from tests.ground.stored.equal_values import tensor_bytes
from tests.tree.carrying import fill, same, stored, trip

from model_checkpoint.errors import UnsupportedType
from model_checkpoint.tree import flatten, prepare
from model_checkpoint.tree.values.dtypes import number

TORCH = [
    d
    for d in dict.fromkeys(v for v in vars(torch).values() if isinstance(v, torch.dtype))
    if not str(d).startswith(("torch.qu", "torch.qi"))
]
NUMPY = [
    *["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16", ">f4", ">i8", ">c16"],
    *["M8[ns]", "m8[25s]", ">M8[D]", "M8", "U4", ">U4", "S3", "V5", "g", "G"],
    [("a", "<f4"), ("b", ">i2", (2, 2)), ("c", [("d", "S3")])],
    np.dtype({"names": ["a", "b"], "formats": ["u1", "f8"], "offsets": [0, 8], "itemsize": 24}),
    *[ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu],
    *[ml_dtypes.float8_e3m4, ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.float4_e2m1fn, ml_dtypes.float6_e2m3fn],
]


def raw_tensor(dtype, shape):
    item = dtype.itemsize
    data = (torch.arange(int(np.prod(shape)) * item) % 2).to(torch.uint8)
    return data.view(dtype).view(shape) if data.numel() else torch.empty(shape, dtype=torch.uint8).view(dtype)


@pytest.mark.parametrize("dtype", TORCH, ids=str)
def test_a_lone_element_comes_back_whatever_its_stride_says(dtype):
    """It counts as contiguous, and a stride of five elements is in no way of its bytes."""
    lone = raw_tensor(dtype, (3, 5))[1:2, 2:3]

    back = trip({"lone": lone.t()})["lone"]

    assert (back.dtype, back.shape) == (dtype, (1, 1))
    assert bytes(back.view(_same_size(dtype)).untyped_storage()) == bytes(
        lone.view(_same_size(dtype)).clone().untyped_storage()
    )


@pytest.mark.parametrize("dtype", TORCH, ids=str)
def test_every_torch_dtype_comes_back_bit_for_bit(dtype):
    state = {"m": raw_tensor(dtype, (2, 3)), "s": raw_tensor(dtype, ()), "t": raw_tensor(dtype, (4, 2)).t()}

    back = trip(state)

    for key, tensor in state.items():
        assert (back[key].dtype, back[key].shape) == (dtype, tensor.shape)
        contiguous = tensor if tensor.is_contiguous() else tensor.view(_same_size(dtype)).contiguous()
        other = back[key].view(_same_size(dtype))
        assert tensor_bytes(contiguous.view(_same_size(dtype))) == tensor_bytes(other)


def _same_size(dtype):
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}[dtype.itemsize]


@pytest.mark.parametrize("dtype", NUMPY, ids=str)
def test_every_numpy_dtype_comes_back_bit_for_bit(dtype):
    dtype = np.dtype(dtype)
    bits = np.random.default_rng(1).integers(0, 2, 12 * dtype.itemsize, np.uint8)
    whole = bits.view(dtype).reshape(3, 4)
    void = f"V{dtype.itemsize}"  # copies keep padding bits
    turned = np.asfortranarray(whole.view(void)).view(dtype)

    back = trip({"c": whole, "f": turned, "n": whole[::-1, ::2], "z": whole[:0], "s": whole[0, 0:1]})

    same(back["c"], whole)
    same(back["f"], whole)
    same(back["n"].view(void).copy(), whole[::-1, ::2].view(void).copy())
    same(back["z"], whole[:0].copy())


def test_stored_forms_are_those_of_the_format():
    state = {
        "c": np.zeros(3, "c16"), "t": np.zeros(2, "M8[us]"), "b": np.zeros(2, ">f4"), "u": np.zeros(2, "U3"),
        "x": torch.zeros(2, 3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), "h": raw_tensor(torch.complex32, (2,)),
        "l": np.zeros(2, "g"), "o": torch.zeros(2, dtype=torch.float8_e8m0fnu),
    }  # fmt: skip

    leaves = {leaf.name: leaf for leaf in flatten(state).leaves}

    told = {name: (leaf.dtype.split("@")[0], leaf.stored, leaf.stored_shape) for name, leaf in leaves.items()}
    assert told == {
        "c": ("complex128", "F64", (3, 2)), "t": ("datetime64[us]", "I64", None), "b": (">float32", "F32", None),
        "u": ("<U3", "U8", (2, 12)), "x": ("float4_e2m1fn_x2", "F4", (2, 6)), "h": ("complex32", "U8", (2, 4)),
        "l": ("longdouble", "U8", (2, 16)), "o": ("float8_e8m0fnu", "F8_E8M0", None),
    }  # fmt: skip
    assert "@" in leaves["l"].dtype


def test_the_safetensors_package_reads_every_stored_form(tmp_path):
    state = {str(i): raw_tensor(dtype, (2, 4)) for i, dtype in enumerate(TORCH)}
    state |= {f"n{i}": np.zeros((2, 2), dtype) for i, dtype in enumerate(NUMPY)}
    header, blob = {}, b""
    for leaf in sorted(flatten(state).leaves, key=lambda leaf: -leaf.alignment):
        data = bytes(leaf.source.window(0, leaf.nbytes))
        span = [len(blob), len(blob) + len(data)]
        header[leaf.name] = {"dtype": leaf.stored, "shape": leaf.stored_shape or leaf.shape, "data_offsets": span}
        blob += data
    text = json.dumps(header).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + blob)

    with safe_open(tmp_path / "x.safetensors", "pt") as file:
        read = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict

    assert len(read) == len(state)
    assert read["n3"].dtype == torch.uint16


def test_contiguous_host_memory_is_a_view_never_a_copy():
    tensor, array = torch.zeros(8, dtype=torch.bfloat16), np.zeros(8)
    first, second = flatten([tensor, array]).leaves

    with torch.no_grad():
        tensor += 1
    array += 1

    assert bytes(first.source.window(0, 16)) == b"\x80\x3f" * 8
    assert bytes(second.source.window(8, 16)) == struct.pack("<d", 1.0)


@pytest.mark.parametrize("make", [lambda n: torch.zeros(n, n).t(), lambda n: np.zeros((n, n), ">f4").T[::-1]])
def test_a_window_of_strided_memory_costs_only_the_window(make):
    import tracemalloc

    (leaf,) = flatten([make(2000)]).leaves
    tracemalloc.start()
    try:
        leaf.source.window(1_000_001, 1_100_003)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1_000_000


def test_conjugate_and_negative_bits_are_resolved():
    z = torch.tensor([1 + 2j, 3 - 4j])

    back = trip({"c": z.conj(), "n": z.conj().imag, "plain": torch.tensor([1 + 1j])})

    assert back["c"].tolist() == [1 - 2j, 3 + 4j]
    assert back["n"].tolist() == [-2, 4]


def test_tied_tensors_are_stored_once_and_tied_again():
    weight = torch.arange(6.0)
    tree, entries, blobs, flat = stored({"a": weight, "b": weight, "c": weight.view(2, 3), "d": weight.detach()})

    back = fill(prepare(tree, entries), blobs)

    assert len(flat.leaves) == 1
    assert flat.unshared == ()
    assert back["a"] is back["b"]
    assert back["d"] is not back["a"]
    back["a"][0] = 9
    assert back["c"][0, 0] == 9
    assert back["d"][0] == 9


def test_views_are_stored_as_their_base():
    base = torch.arange(12.0)
    state = {"odd": base[1::2], "base": base, "turned": base.view(3, 4).t(), "ints": base.view(torch.int32)}

    tree, entries, blobs, flat = stored(state)
    back = fill(prepare(tree, entries), blobs)

    assert [leaf.nbytes for leaf in flat.leaves] == [48]
    for key, tensor in state.items():
        assert torch.equal(back[key], tensor)
    back["base"].zero_()
    assert not any(tensor.any() for tensor in back.values())


def test_overlapping_views_without_their_base_share_memory_again():
    base = np.arange(10)
    tree, entries, blobs, flat = stored({"head": base[:6], "tail": base[4:], "back": base[7:2:-1]})

    state = fill(prepare(tree, entries), blobs)

    assert [leaf.shape for leaf in flat.leaves] == [(10,)]
    same(state["back"].copy(), base[7:2:-1].copy())
    state["head"][5] = -1
    assert state["tail"][1] == -1
    assert state["back"][2] == -1


def test_views_that_cover_too_little_are_stored_apart_and_reported():
    base = torch.arange(1000.0)
    few = {"a": base[::500], "b": base[:1], "again": base[::500]}

    tree, entries, blobs, flat = stored(few)
    back = fill(prepare(tree, entries), blobs)

    assert len(flat.leaves) == 2
    assert set(flat.unshared) == {"a", "b", "again"}
    same(few, back)


def test_disjoint_pieces_of_one_storage_keep_their_own_names():
    left, right = torch.arange(10.0).chunk(2)

    flat = flatten({"left": left, "right": right})

    assert [(leaf.name, leaf.shape) for leaf in flat.leaves] == [("left", (5,)), ("right", (5,))]


def test_torch_and_numpy_over_one_memory_share_it_again():
    array = np.arange(4.0)

    back = trip({"n": array, "t": torch.from_numpy(array)})

    assert isinstance(back["t"], torch.Tensor)
    back["n"][0] = 5
    assert back["t"][0] == 5


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (torch.eye(2).to_sparse(), r"state|a\[0\]: .*sparse.*register_codec\(Tensor"),
        (torch.empty(2, device="meta"), r"a\[0\]: a meta tensor"),
        (np.array([{}], object), r"a\[0\]: .*dtype object.*register_codec\(ndarray"),
        (np.array(["a"], np.dtypes.StringDType()), r"a\[0\]: .*StringDType.*register_codec"),
        (torch.zeros(2).as_subclass(type("Sub", (torch.Tensor,), {})), r"a\[0\]: .*tensor subclass .*Sub"),
        (np.ma.masked_array([1]), r"a\[0\]: .*MaskedArray.*register_codec"),
    ],
    ids=["sparse", "meta", "object", "string", "subclass", "masked"],
)
def test_arrays_without_plain_bytes_are_refused_with_the_cure(value, told):
    with pytest.raises(UnsupportedType, match=told):
        flatten({"a": [value]})


@pytest.mark.filterwarnings("ignore")
def test_quantized_tensors_are_refused_with_the_cure():
    tensor = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)

    with pytest.raises(UnsupportedType, match=r"^q: .*quantized.*register_codec"):
        flatten({"q": tensor})


def test_mapped_memory_is_adopted_without_copying():
    state = {"t": torch.arange(4, dtype=torch.bfloat16), "n": np.arange(3.0), "b": np.arange(3, dtype=">i4")}
    tree, entries, blobs, _ = stored(state)
    restore = prepare(tree, entries)
    maps = [memoryview(bytearray(blob)) for blob in blobs]

    taken = [restore.adopt(index, maps[index]) for index in restore.needed]
    restore.target(2).put(0, maps[2])
    back = restore.finish()

    assert taken == [True, True, False]
    same(state, back)
    maps[1][0:8] = struct.pack("<d", 7.0)
    assert back["n"][0] == 7.0


def test_read_only_maps_serve_numpy_but_not_torch():
    tree, entries, blobs, _ = stored({"t": torch.zeros(2), "n": np.zeros(2)})
    restore = prepare(tree, entries)

    assert [restore.adopt(i, memoryview(blobs[i])) for i in restore.needed] == [False, True]
    assert not fill(restore, [*blobs[:1], b""])["n"].flags.writeable


@pytest.mark.parametrize(
    "name",
    ["bool", "int8", "uint16", "float8_e4m3fn", "bfloat16", "int64", "complex64", "complex128"],
)
def test_an_array_is_aligned_to_the_numbers_it_is_stored_as(name):
    dtype = number(name)
    sizes = {"BOOL": 1, "I8": 1, "U16": 2, "F8_E4M3": 1, "BF16": 2, "I64": 8, "C64": 8, "F64": 8, "F4": 1}

    assert dtype.alignment == sizes[dtype.stored]
    assert dtype.nbytes((3, 2)) % dtype.alignment == 0
