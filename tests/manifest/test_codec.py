"""A manifest comes back exactly, or not at all."""

import hashlib
import math

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from model_checkpoint import errors
from model_checkpoint.manifest import (
    HEAD_BYTES,
    Entry,
    FileRecord,
    Manifest,
    decode,
    decode_head,
    decode_summary,
    encode,
    pack,
    unpack,
)
from model_checkpoint.manifest.scalars import pack_number, unpack_number
from model_checkpoint.options import ReaderLimits


def manifest(**changes):
    fields = {
        "id": "a" * 32,
        "attempt": "b" * 32,
        "name": "step-00000001",
        "step": 1,
        "created": "2026-01-01T00:00:00+00:00",
        "layout": "multi_shard",
        "compression": "none",
        "tree": ["d", ["w", ["a", 0]]],
        "entries": (Entry("w", "numpy", "float32", (2,), "F32", None, 0, 4096, 4104, "ff"),),
        "files": (FileRecord("r0-0-b.safetensors", 4104, (4096, 4104), "", "", ""),),
    }
    return Manifest(**fields | changes)


def signed(line: bytes) -> bytes:
    return line + b"\n" + hashlib.sha256(line).hexdigest().encode()


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def same(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


@given(plain)
def test_plain_data_survives_exactly(value):
    assert same(unpack(msgspec.json.decode(msgspec.json.encode(pack(value)))), value)


def test_unsupported_metadata_names_its_path():
    with pytest.raises(errors.UnsupportedType, match=r"metadata\.a\[1\].*got object"):
        pack({"a": [1, object()]})


def test_a_manifest_comes_back_equal_and_its_summary_agrees():
    original = manifest(metrics=pack({"loss": float("nan")}))

    copy = decode(encode(original), "here")
    summary = decode_summary(encode(original), "here")

    assert copy == original
    assert (summary.id, summary.step, summary.files) == (original.id, 1, original.files)


def test_a_large_manifest_is_compressed_and_comes_back():
    big = manifest(entries=tuple(manifest().entries[0] for _ in range(120_000)))

    data = encode(big)

    assert data[:4] == b"\x28\xb5\x2f\xfd"
    assert len(data) < 1 << 20
    assert decode(data, "here") == big


def test_every_flipped_bit_is_refused():
    data = encode(manifest())
    for i in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[i // 8] ^= 1 << (i % 8)
        with pytest.raises(errors.ManifestInvalid, match="cannot be used"):
            decode(bytes(damaged), "here")


def test_every_truncation_is_refused():
    data = encode(manifest())
    for length in range(len(data)):
        with pytest.raises(errors.ManifestInvalid, match="cannot be used"):
            decode(data[:length], "here")


LINE = msgspec.json.encode(manifest())


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (LINE.replace(b'"step":1', b'"step":1,"step":2'), "stands twice"),
        (LINE.replace(b'"step":1', b'"step": 1'), "blanks"),
        (LINE.replace(b'"step":1', b'"step":NaN'), "not JSON"),
        (LINE.replace(b'"step":1', b'"step":1e999'), "not those of a manifest"),
        (LINE.replace(b'"step":1', b'"step":' + b"9" * 5000), "manifest"),
        (LINE.replace(b'"name":"step', b'"name":"\xff\xfe'), "cannot be used"),
        (b"[" * 100_000, "not JSON"),
        (LINE.replace(b'"tree":[', b'"tree":[' + b"[" * 100_000 + b"]" * 100_000 + b","), "cannot be used"),
        (b"{}", "missing"),
        (LINE.replace(b"model_checkpoint", b"other"), "format is 'other'"),
    ],
)
def test_hostile_but_signed_manifests_are_refused(line, problem):
    with pytest.raises(errors.ManifestInvalid, match=problem):
        decode(signed(line), "here")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"created": "2026-01-01T00:00:00"}, "has no zone"),
        ({"created": "yesterday"}, "Invalid isoformat"),
        ({"layout": "round"}, "'round' is not a valid CheckpointFormat"),
        ({"compression": "harder"}, "'harder' is not a valid CompressionLevel"),
        ({"metrics": pack([1])}, "metrics or metadata are no mapping"),
        ({"metadata": pack("text")}, "metrics or metadata are no mapping"),
        ({"step": -1}, "step -1 of 1 processes"),
        ({"world_size": 0}, "step 1 of 0 processes"),
    ],
)
def test_values_no_save_has_written_are_refused(changes, problem):
    for read in (decode, decode_summary):
        with pytest.raises(errors.ManifestInvalid, match=problem):
            read(encode(manifest(**changes)), "here")


@pytest.mark.parametrize("changes", [{"step": 0}, {"step": None}, {"metrics": pack({}), "metadata": None}])
def test_the_least_values_a_save_writes_are_read(changes):
    assert decode(encode(manifest(**changes)), "here") == manifest(**changes)


def test_text_too_short_for_a_manifest_is_called_so():
    with pytest.raises(errors.ManifestInvalid, match="it has 66 bytes, too few to be one"):
        decode(b"{" + b"\n" + b"0" * 64, "here")
    with pytest.raises(errors.ManifestInvalid, match="format, version or features are missing"):
        decode(signed(b"{}"), "here")


def test_another_separator_than_a_newline_is_refused():
    with pytest.raises(errors.ManifestInvalid, match="self-digest"):
        decode(signed(LINE).replace(b"}\n", b"} "), "here")


def test_a_manifest_is_compressed_above_four_mebibytes_only():
    size = len(encode(manifest(name="")))
    room = (4 << 20) - size

    assert encode(manifest(name="n" * room)).startswith(b"{")
    assert len(encode(manifest(name="n" * room))) == 4 << 20
    assert encode(manifest(name="n" * (room + 1))).startswith(b"\x28\xb5\x2f\xfd")


def test_a_damaged_compressed_manifest_is_refused():
    data = encode(manifest(name="n" * (4 << 20)))

    for damaged in (data[:-1], data + b"x", data[:40] + bytes([data[40] ^ 1]) + data[41:]):
        with pytest.raises(errors.ManifestInvalid, match="cannot be used"):
            decode(damaged, "here")


def test_a_compressed_manifest_may_be_as_large_as_the_limit():
    large = manifest(name="n" * (4 << 20))
    size = zstandard.get_frame_parameters(encode(large)).content_size

    assert decode(encode(large), "here", limits=ReaderLimits(manifest_bytes=size)) == large
    with pytest.raises(errors.LimitExceeded, match=f"announces {size} bytes, the limit is {size - 1}"):
        decode(encode(large), "here", limits=ReaderLimits(manifest_bytes=size - 1))


def test_a_file_has_the_size_it_would_have_decompressed():
    record = manifest().files[0]

    assert (record.raw_size, record.size) == (4104, 4104)
    assert msgspec.structs.replace(record, size=100).raw_size == 4104
    assert msgspec.structs.replace(record, ends=(), size=7).raw_size == 7


def test_a_manifest_says_its_format_the_reader_it_needs_and_how_many_wrote_it():
    plain = manifest()

    assert (plain.format, plain.format_version, plain.min_reader, plain.world_size) == ("model_checkpoint", 1, 1, 1)


def test_records_of_older_manifests_lack_what_came_later():
    short = msgspec.json.encode(msgspec.to_builtins(manifest().files[0])[:6])

    record = msgspec.json.decode(short, type=FileRecord)

    assert (record.frames, record.identity, record.verified) == ((), "", 0)


@pytest.mark.parametrize("number", [2**53 - 1, 1 - 2**53])
def test_integers_every_reader_keeps_stay_as_they_are(number):
    assert pack(number) == number


@pytest.mark.parametrize("number", [True, False, 7, -(2**60), 0.5, float("inf")])
def test_a_number_by_itself_comes_back_with_its_type(number):
    assert same(unpack_number(pack_number(number)), number)


def test_an_entry_has_the_bytes_between_its_start_and_stop():
    assert manifest().entries[0].nbytes == 8


@pytest.mark.parametrize("number", [2**53, -(2**53), 10**400])
def test_larger_integers_become_text(number):
    assert pack(number) == ["i", hex(number)]
    assert unpack(pack(number)) == number


@pytest.mark.parametrize(
    "node", [["f", 1], ["i", 1], ["x", "1"], [], ["d", ["key"]], ["l", "text"], ["f"], ["f", "0x1p0", "more"]]
)
def test_what_is_no_node_is_refused(node):
    with pytest.raises(errors.ManifestInvalid, match="is no number"):
        unpack(node)


def test_a_hundred_and_twenty_containers_inside_each_other_are_written_and_no_more():
    def nested(levels):
        value = 7
        for level in range(levels):
            value = [value] if level % 2 else {"a": value}
        return value

    assert unpack(pack(nested(120))) == nested(120)
    with pytest.raises(errors.UnsupportedType, match="nested deeper than 120 containers"):
        pack(nested(121))


def test_tuples_are_lists_and_other_keys_than_text_are_refused():
    assert unpack(pack((1, (True, None)))) == [1, [True, None]]
    with pytest.raises(errors.UnsupportedType, match=r"metadata\.a: .*got dict"):
        pack({"a": {1: 2}})


def test_a_newer_format_is_refused_by_version():
    with pytest.raises(errors.IncompatibleVersion, match=r"format 9, needs a reader of format 9.*pip install -U"):
        decode(encode(manifest(format_version=9, min_reader=9)), "here")


def test_an_unknown_required_feature_is_refused_by_name():
    with pytest.raises(errors.IncompatibleVersion, match="telepathy"):
        decode(encode(manifest(features=("telepathy",))), "here")


def test_a_newer_format_that_older_readers_may_read_is_read_and_unknown_fields_are_passed_over():
    line = msgspec.json.encode(manifest(format_version=2))[:-1] + b',"later":[1]}'

    assert decode(signed(line), "here").format_version == 2


def test_a_compressed_bomb_is_refused_before_it_unfolds():
    big = manifest(entries=tuple(manifest().entries[0] for _ in range(120_000)))

    with pytest.raises(errors.LimitExceeded, match="the limit is 1000"):
        decode(encode(big), "here", limits=ReaderLimits(manifest_bytes=1000))


@pytest.mark.parametrize("place", ["tree", "metadata", "attributes"])
def test_nesting_is_granted_to_the_depth_of_the_limits(place):
    def nested(depth):
        node = ["l", []]
        for _ in range(depth // 2 - 2):
            node = ["l", [node]]
        node = ["d", ["k", node]]
        if place != "attributes":
            return manifest(**{place: node})
        return manifest(entries=(msgspec.structs.replace(manifest().entries[0], attributes=node),))

    for depth in (12, 40):
        limits = ReaderLimits(depth=depth)
        assert decode(encode(nested(depth)), "here", limits=limits) == nested(depth)
        with pytest.raises(errors.LimitExceeded, match=f"^here: the manifest has more than {depth} arrays inside"):
            decode(encode(nested(depth + 2)), "here", limits=limits)


# --- heads -----------------------------------------------------------------------------------------------------------


def long_manifest(rows):
    entries = tuple(Entry(f"w{i}", "numpy", "f4", (2,), "F32", None, 0, 0, 8, f"{i:032x}") for i in range(rows))
    return manifest(entries=entries, metrics=pack({"loss": 0.5}), left_out=("optimizer",), features=("incomplete",))


@pytest.mark.parametrize("rows", [3_000, 120_000], ids=["plain", "compressed"])
def test_the_first_bytes_of_a_long_manifest_tell_all_that_a_listing_needs(rows):
    original = long_manifest(rows)
    data = encode(original)

    head = decode_head(data[:HEAD_BYTES], "here")

    assert len(data) > HEAD_BYTES
    assert head.copies == original.copies == decode_summary(data, "here").copies
    assert (head.id, head.metrics, head.left_out) == (original.id, original.metrics, ("optimizer",))


def test_every_damaged_byte_of_a_head_is_found():
    data = encode(long_manifest(3_000))
    end = data.index(b',"head":"') + 9 + 64

    for at in range(end):
        start = bytearray(data[:HEAD_BYTES])
        start[at] ^= 1
        try:
            head = decode_head(bytes(start), "here")
        except (errors.ManifestInvalid, errors.IncompatibleVersion):
            continue
        assert head is None, f"byte {at} of the head was changed unseen"  # then all of the manifest is read


def test_a_manifest_without_a_head_is_asked_for_as_a_whole():
    """Earlier versions wrote none."""
    line = msgspec.json.encode(long_manifest(3_000))

    assert decode_head(signed(line)[:HEAD_BYTES], "here") is None
    assert decode_summary(signed(line), "here").step == 1


@pytest.mark.parametrize(("missing", "told"), [(0, True), (1, False), (64, False)])
def test_a_head_whose_digest_is_cut_off_is_asked_for_as_a_whole(missing, told):
    def with_note(length):
        return encode(manifest(metadata=pack({"note": "n" * length}), entries=long_manifest(3_000).entries))

    end = with_note(0).index(b',"head":"') + 9 + 64
    data = with_note(HEAD_BYTES - end + missing)

    assert (decode_head(data[:HEAD_BYTES], "here") is not None) is told
    assert decode_summary(data, "here").step == 1


def test_a_manifest_that_fits_is_checked_to_its_last_byte():
    data = encode(manifest())

    assert decode_head(data, "here") == decode_summary(data, "here")
    with pytest.raises(errors.ManifestInvalid, match="self-digest"):
        decode_head(data[:-70] + b"?" + data[-69:], "here")


def test_a_frame_that_would_grow_without_end_is_read_no_further_than_a_head():
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 28)) * 20

    assert decode_head(bomb, "here") is None
