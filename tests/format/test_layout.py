"""Where tensors and chunks lie in a data file."""

import json
import struct
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load as st_load

from model_checkpoint.format import Tensor, lay_out
from model_checkpoint.format.stored import tensor_bytes

CHUNK = 1000
sizes = st.lists(st.tuples(st.integers(0, 3 * CHUNK), st.sampled_from([1, 2, 4, 8])), max_size=30)
DTYPES = {1: "U8", 2: "I16", 4: "F32", 8: "F64"}


def tensors(spec):
    return [Tensor(f"t{i}", DTYPES[a], (n // a,), n // a * a, a) for i, (n, a) in enumerate(spec)]


@given(sizes)
def test_tensors_are_aligned_without_holes_and_chunks_obey_the_rule(spec):
    given_tensors = tensors(spec)

    layout = lay_out(given_tensors, metadata={}, chunk_bytes=CHUNK)

    assert layout.starts[0] % 4096 == 0 == (layout.starts[0] - len(layout.header))
    assert sorted(layout.order) == list(range(len(spec)))
    begins = [0, *layout.ends]
    assert all(b - a <= CHUNK for a, b in pairwise(begins[1:]))
    assert layout.ends[-1] == layout.size
    for place, i in enumerate(layout.order):
        start, stop = layout.starts[place], layout.starts[place + 1]
        assert start % given_tensors[i].alignment == 0
        assert stop - start == given_tensors[i].nbytes
        if stop - start >= CHUNK:
            assert [e for e in layout.ends if start <= e < stop] == list(range(start, stop, CHUNK))


@given(sizes)
def test_the_file_is_valid_safetensors(spec):
    layout = lay_out(tensors(spec), metadata={"format": "pt"}, chunk_bytes=CHUNK)
    data = layout.header + bytes(layout.size - len(layout.header))

    arrays = st_load(data)

    assert {k: (str(v.dtype), v.nbytes) for k, v in arrays.items()} == {
        t.name: (str(np.dtype({"U8": "u1", "I16": "i2", "F32": "f4", "F64": "f8"}[t.dtype])), t.nbytes)
        for t in tensors(spec)
    }


def test_small_tensors_share_a_chunk_to_its_last_byte():
    def chunks(*lengths):
        layout = lay_out(tensors([(n, 1) for n in lengths]), metadata={}, chunk_bytes=CHUNK)
        return [stop - start for start, stop in pairwise(layout.ends)]

    assert chunks(CHUNK - 1, 1) == [CHUNK]
    assert chunks(CHUNK - 1, 1, 1) == [CHUNK, 1]
    assert chunks(CHUNK - 1, 2) == [CHUNK - 1, 2]


def test_the_header_says_its_length_and_is_padded_with_blanks():
    header = lay_out([Tensor("w", "F32", (2,), 8, 4)], metadata={}, chunk_bytes=CHUNK).header

    assert struct.unpack("<Q", header[:8])[0] == len(header) - 8
    assert json.loads(header[8:])["w"]["shape"] == [2]


def test_impossible_shapes_have_no_size():
    assert tensor_bytes("F32", (1 << 62, 0)) == 0
    assert tensor_bytes("F32", (1 << 63,)) is None
    assert tensor_bytes("F32", (1 << 40, 1 << 40)) is None
    assert tensor_bytes("F4", (3,)) is None
