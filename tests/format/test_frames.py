"""Compressed chunks come back bit for bit, never grow, and a hostile frame is refused before it can do harm."""

import struct
from contextlib import suppress

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from model_checkpoint import format as data_format
from model_checkpoint.errors import CorruptedCheckpoint, LayoutInvalid, LimitExceeded
from model_checkpoint.format.byte_planes import _sample
from model_checkpoint.manifest import FileRecord, Frame
from model_checkpoint.options import CompressionLevel, ReaderLimits

LEVELS = [level for level in CompressionLevel if level is not CompressionLevel.NONE]


def compress(data, width, level=CompressionLevel.FAST):
    return b"".join(data_format.Compressor(level).compress(np.frombuffer(data, np.uint8), width))


def give_back(frame, size, width):
    room = np.empty(size, np.uint8)
    data_format.decompress(memoryview(frame), room, width)
    return room.tobytes()


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(0, 300_000),
    width=st.integers(1, 16),
    span=st.integers(1, 256),
    level=st.sampled_from(LEVELS[:2]),
)
@settings(max_examples=150, deadline=None)
def test_any_bytes_of_any_length_come_back_at_any_width_and_never_grow(seed, size, width, span, level):
    data = np.random.default_rng(seed).integers(0, span, size, np.uint8).tobytes()

    frame = compress(data, width, level)

    assert len(frame) <= len(data)
    assert frame == data if len(frame) == len(data) else give_back(frame, len(data), width) == data


@pytest.mark.parametrize("level", LEVELS)
def test_exponents_of_normal_weights_are_compressed_to_their_entropy(level):
    weights = (np.random.default_rng(0).standard_normal(1 << 20) * 0.02).astype(np.float32)
    bf16 = weights.view(np.uint16)[1::2].tobytes()

    assert len(compress(bf16, 2, level)) < 0.68 * len(bf16)
    assert len(compress(weights.tobytes(), 4, level)) < 0.85 * weights.nbytes


def test_repeats_are_found_where_there_are_any():
    words = (b"the quick brown fox jumps over the lazy dog; " * 20_000)[: 1 << 19]

    assert len(compress(words, 1)) < 0.01 * len(words)


def test_noise_stays_as_it_is():
    noise = np.random.default_rng(0).bytes(1 << 20)

    assert compress(noise, 4) == noise


def test_a_frame_as_long_as_its_chunk_is_not_made():
    """What takes no less room is stored as it is, and told by that."""
    noise = np.random.default_rng(0).integers(0, 256, 300, np.uint8)
    for repeats in range(60):
        data = np.concatenate([np.zeros(repeats, np.uint8), noise]).tobytes()

        frame = compress(data, 1)

        assert len(frame) < len(data) or frame == data


def test_a_plane_that_compresses_to_its_own_length_comes_back_too():
    """Stored at full length means stored as it is, so a frame of just that length would be taken for the plane."""
    noise = np.random.default_rng(0).integers(0, 256, 300, np.uint8)
    for repeats in range(60):
        plane = np.concatenate([np.zeros(repeats, np.uint8), noise])
        data = np.stack([plane, np.zeros_like(plane)], axis=1).tobytes()

        frame = compress(data, 2)

        assert len(frame) < len(data)
        assert give_back(frame, len(data), 2) == data


@pytest.mark.parametrize("size", [65_537, 200_000])
def test_a_plane_is_judged_by_pieces_from_its_start_to_its_end(size):
    plane = np.arange(size, dtype=np.uint32).view(np.uint8)[:size]

    sample = _sample(plane)

    assert len(sample) == 64 << 10
    assert sample[:1000] == plane[:1000].tobytes()
    assert sample[-1000:-4] in plane[-2000:].tobytes()


def test_a_compressor_may_be_used_again_and_again():
    compressor = data_format.Compressor(CompressionLevel.FAST)
    for size in (10, 1 << 20, 7, 4096):
        data = np.arange(size, dtype=np.uint32).view(np.uint8)

        frame = b"".join(compressor.compress(data, 4))

        assert frame == data.tobytes() or give_back(frame, data.nbytes, 4) == data.tobytes()


def bomb(size):
    """A zstd frame of a few bytes that unpacks to ``size`` zeros."""
    return zstandard.ZstdCompressor().compress(bytes(size))


def unsized(data):
    """A zstd frame that does not announce how much it unpacks to."""
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "no room for the lengths"),
        (b"\0\0\0", "no room for the lengths"),
        (struct.pack("<I", 9) + bytes(8), "its planes take 9 bytes, the frame has 8"),
        (struct.pack("<I", 7) + bytes(8), "its planes take 7 bytes"),
        (struct.pack("<I", 101) + bytes(101), "at most 100 are possible"),
        (struct.pack("<I", 20) + bytes(20), "cannot be unpacked"),
        (struct.pack("<I", len(bomb(1 << 24))) + bomb(1 << 24), "at most 100|announces 16777216 bytes, expected 100"),
        (struct.pack("<I", len(bomb(1 << 17))) + bomb(1 << 17), "announces 131072 bytes, expected 100"),
        (struct.pack("<I", len(bomb(99))) + bomb(99), "announces 99 bytes, expected 100"),
        (struct.pack("<I", len(unsized(bytes(100)))) + unsized(bytes(100)), "announces"),
        (struct.pack("<I", len(bomb(100)) + 3) + bomb(100) + b"abc", "cannot be unpacked"),
    ],
)
def test_a_hostile_frame_is_refused(frame, reason):
    with pytest.raises(CorruptedCheckpoint, match=reason):
        give_back(frame, 100, 1)


@given(frame=st.binary(max_size=200), width=st.integers(1, 16), size=st.integers(0, 5000))
def test_any_bytes_at_all_are_a_frame_or_refused(frame, width, size):
    with suppress(CorruptedCheckpoint):
        assert len(give_back(frame, size, width)) == size


def sound_record():
    digests = [data_format.ChunkDigest(bytes(32), bytes(16))] * 3
    frames = [
        data_format.raw_frame(0, 4096),
        data_format.planes_frame(4096, 4196, width=2, xxh3=bytes(16)),
        data_format.raw_frame(4196, 5196),
    ]
    return data_format.file_record("r0", size=5196, ends=(4096, 5096, 6096), digests=digests, frames=frames)


def change(number, **fields) -> FileRecord:
    record = sound_record()
    frames = list(record.frames)
    frames[number] = msgspec.structs.replace(frames[number], **fields)
    return msgspec.structs.replace(record, frames=tuple(frames))


def test_sound_frames_are_accepted():
    data_format.check_files([sound_record()], "here", ReaderLimits())
    for edge in (change(1, width=16), change(1, width=1)):
        data_format.check_files([edge], "here", ReaderLimits(frame_bytes=1000))


def test_the_header_of_a_compressed_file_is_the_one_its_record_is_checked_against():
    record = sound_record()

    header = data_format.frame_header(record.frames, metadata={"a": "b"}, room=4096)

    data_format.check_header(
        header, data_format.frame_entries(record), size=record.size, where="here", limits=ReaderLimits()
    )


@pytest.mark.parametrize(
    "record",
    [
        change(0, stop=4095),
        change(0, start=1),
        change(0, codec="planes-zstd"),
        change(1, start=4000),
        change(1, stop=4200),
        change(1, stop=4096),
        change(1, codec="raw"),
        change(1, codec="brotli"),
        change(1, width=0),
        change(1, width=17),
        change(1, width=-1),
        change(1, xxh3=""),
        change(1, xxh3="%%%"),
        change(2, stop=6196),
        change(2, codec="planes-zstd", xxh3="AAAAAAAAAAAAAAAAAAAAAA=="),
        msgspec.structs.replace(sound_record(), frames=sound_record().frames[:2]),
        msgspec.structs.replace(sound_record(), frames=(*sound_record().frames, Frame(5196, 5196, "raw", 1, ""))),
        msgspec.structs.replace(sound_record(), size=5000),
        msgspec.structs.replace(sound_record(), frames=()),
    ],
)
def test_frames_that_cannot_be_are_refused_before_a_file_is_opened(record):
    with pytest.raises(LayoutInvalid, match=r"here: .*r0.*damaged or hostile"):
        data_format.check_files([record], "here", ReaderLimits())


def test_a_chunk_that_would_unpack_beyond_the_limit_is_refused():
    record = msgspec.structs.replace(sound_record(), ends=(4096, 5096 + (1 << 40), 6096 + (1 << 40)))

    with pytest.raises(LimitExceeded, match="would unpack to 1099511628776 bytes, the limit is 67108864"):
        data_format.check_files([record], "here", ReaderLimits())


def test_a_header_of_frames_fits_the_room_kept_for_uncompressed_ones():
    tensors = [data_format.Tensor(f"t{i}", "F32", (1 << 21,), 1 << 23, 4) for i in range(300)]
    layout = data_format.lay_out(tensors, metadata={"a": "b"}, chunk_bytes=1 << 22)

    reserved = data_format.reserve_frames(layout, metadata={"a": "b"}, limits=ReaderLimits())
    frames, at = [data_format.raw_frame(0, reserved.ends[0])], reserved.ends[0]
    for size in np.random.default_rng(0).integers(1, 1 << 22, len(layout.ends) - 1).tolist():
        frames.append(data_format.planes_frame(at, at + size, width=4, xxh3=bytes(16)))
        at += size

    header = data_format.frame_header(frames, metadata={"a": "b"}, room=reserved.ends[0])
    assert len(header) == reserved.ends[0] == reserved.starts[0]
    assert reserved.size - reserved.starts[0] == layout.size - layout.starts[0]


def test_more_chunks_than_a_reader_grants_are_refused_at_the_save():
    tensors = [data_format.Tensor("t", "U8", (1 << 20,), 1 << 20, 1)]
    layout = data_format.lay_out(tensors, metadata={}, chunk_bytes=1 << 10)

    data_format.reserve_frames(layout, metadata={}, limits=ReaderLimits(tensors_per_file=1024))
    with pytest.raises(LimitExceeded, match=r"1024 chunks: readers grant 1023.*MULTI_SHARD"):
        data_format.reserve_frames(layout, metadata={}, limits=ReaderLimits(tensors_per_file=1023))
