"""Files an enemy made: each is refused with a typed error, quickly, in little memory, and nothing runs."""

import ast
import hashlib
import json
import resource
import struct
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint import errors
from model_checkpoint.format import ChunkDigest, digest_chunks, file_record
from model_checkpoint.manifest import decode, encode

STATE = {"w": np.arange(8, dtype=np.float32), "v": np.arange(4, dtype=np.float32)}


@pytest.fixture
def victim(tmp_path):
    """A saved checkpoint, and how to put forged but rightly signed files in its place."""
    return Victim(Path(mc.save(tmp_path, STATE, step=1).path), tmp_path)


class Victim:
    def __init__(self, folder, root):
        self.folder, self.root = folder, root
        self.data = next(folder.glob("*.safetensors"))
        self.manifest = decode((folder / "manifest.json").read_bytes(), "")

    def forge_manifest(self, **changes):
        (self.folder / "manifest.json").write_bytes(encode(msgspec.structs.replace(self.manifest, **changes)))

    def forge_file(self, data, header_end=None):
        """Write ``data`` as the data file and sign it properly."""
        self.data.write_bytes(data)
        end = min(header_end or self.manifest.files[0].ends[0], len(data))
        ends = [end, len(data)] if end < len(data) else [end]
        bounds = zip([0, *ends], ends, strict=False)
        digests = digest_chunks([memoryview(data)[a:b] for a, b in bounds])
        self.forge_manifest(files=(file_record(self.data.name, size=len(data), ends=ends, digests=digests),))

    def forge_header(self, header):
        """Replace the header text, keeping its length where that fits."""
        text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
        room = self.manifest.files[0].ends[0] - 8
        body = self.data.read_bytes()[room + 8 :]
        text = text.ljust(room)
        shift = len(text) - room
        moved = [msgspec.structs.replace(e, start=e.start + shift, stop=e.stop + shift) for e in self.manifest.entries]
        self.manifest = msgspec.structs.replace(self.manifest, entries=tuple(moved))
        self.forge_file(struct.pack("<Q", len(text)) + text + body, header_end=len(text) + 8)

    def header(self):
        return json.loads(self.data.read_bytes()[8 : self.manifest.files[0].ends[0]])

    def refused(self, kind, match):
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        with pytest.raises(kind, match=match) as caught:
            mc.load(self.root)
        assert time.process_time() - started < 5
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
        assert not mc.verify(self.root)[0].ok
        return caught.value


@pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 1, 1 << 40, 5000])
def test_a_header_longer_than_the_file_or_the_limit(victim, length):
    data = struct.pack("<Q", length) + victim.data.read_bytes()[8:]
    victim.forge_file(data)

    victim.refused(errors.HeaderTooLarge, "announces a header of")


@pytest.mark.parametrize("size", range(8))
def test_a_file_of_a_few_bytes(victim, size):
    victim.data.write_bytes(bytes(size))

    victim.refused(errors.Truncated, "the manifest says")


def changed(header, name, **fields):
    return {**header, name: {**header[name], **fields}}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda h: changed(h, "w", data_offsets=[0, 31]), "lies at|needs"),
        (lambda h: changed(h, "w", data_offsets=[32, 0]), "lies at"),
        (lambda h: changed(h, "v", data_offsets=[0, 16]), "lies at"),
        (lambda h: changed(h, "v", data_offsets=[40, 56]), "lies at"),
        (lambda h: changed(h, "v", data_offsets=[32, 1 << 62]), "lies at"),
        (lambda h: changed(h, "w", shape=[-8]), "needs None"),
        (lambda h: changed(h, "w", shape=[1 << 62, 0]), "needs 0"),
        (lambda h: changed(h, "w", shape=[1 << 40, 1 << 40]), "needs None"),
        (lambda h: changed(h, "w", dtype="F99"), "needs None"),
        (lambda h: changed(h, "w", extra=1), "not readable"),
        (lambda h: {k: v for k, v in h.items() if k != "v"}, "cover 32 bytes of 48"),
        (lambda h: [1, 2], "does not start with"),
    ],
)
def test_a_layout_that_cannot_be(victim, change, problem):
    victim.forge_header(change(victim.header()))

    victim.refused(errors.LayoutInvalid, problem)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"{" + b",".join([b'"w":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}'] * 2) + b"}", "twice"),
        (b' {"w":1}', "does not start with"),
        (b'{"w":NaN}', "not readable"),
        (b'{"w":' + b"[" * 3000 + b"]" * 3000 + b"}", "not readable"),
        (b'{"w":"\xff"}', "not readable"),
        (b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR.", "does not start with"),
    ],
)
def test_a_header_that_is_no_honest_json(victim, text, problem):
    victim.forge_header(text)

    victim.refused(errors.LayoutInvalid, problem)
    assert not (victim.root / "pwned").exists()


def test_names_with_control_characters_or_without_end(victim):
    original = victim.header()
    for name in ("a\0b", "a\nb", "n" * 2000):
        header = {**original, name: original["v"]}
        del header["v"]
        victim.forge_header(header)
        victim.refused(errors.UnsafeName, "too long or has control")


def test_a_header_with_other_tensors_than_the_manifest(victim):
    header = victim.header()
    header["other"] = header.pop("v")
    victim.forge_header(header)

    victim.refused(errors.ManifestMismatch, "belongs to another checkpoint")


@pytest.mark.slow
def test_a_million_tensors_in_one_header(victim):
    row = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    victim.forge_header({f"t{i}": row for i in range(1_000_000)})

    victim.refused(errors.HeaderTooLarge, "the limit is 16777216")


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a//b", "C:\\x", "a\0", "a\n", "..", ".", "", "\u202egnp", "n" * 300]
)
def test_file_names_that_could_leave_the_folder(victim, name):
    victim.forge_manifest(files=(msgspec.structs.replace(victim.manifest.files[0], name=name),))

    victim.refused(errors.UnsafeName, "the manifest names a file")


def test_two_file_names_equal_but_for_case(victim):
    record = victim.manifest.files[0]
    victim.forge_manifest(files=(record, msgspec.structs.replace(record, name=record.name.upper())))

    victim.refused(errors.UnsafeName, "once each")


@pytest.mark.parametrize(
    "change",
    [
        {"start": 0},
        {"stop": 1 << 40},
        {"start": 4128, "stop": 4096},
        {"file": 9},
        {"file": -1},
        {"shape": (9,)},
        {"shape": (-8,)},
    ],
)
def test_entries_that_cannot_lie_there(victim, change):
    entries = (msgspec.structs.replace(victim.manifest.entries[0], **change), *victim.manifest.entries[1:])
    victim.forge_manifest(entries=entries)

    victim.refused(errors.LayoutInvalid, "cannot lie at")


def test_an_entry_of_absurd_rank(victim):
    entry = msgspec.structs.replace(victim.manifest.entries[0], shape=(1,) * 1000)
    victim.forge_manifest(entries=(entry, *victim.manifest.entries[1:]))

    victim.refused(errors.LimitExceeded, "rank 1000")


@pytest.mark.parametrize("ends", [(), (0, 4144), (4096, 4096, 4144), (4144, 4096), (4096, 5000)])
def test_chunk_tables_that_do_not_fit(victim, ends):
    victim.forge_manifest(files=(msgspec.structs.replace(victim.manifest.files[0], ends=ends),))

    victim.refused(errors.LayoutInvalid, "chunk table")


@pytest.mark.parametrize("field", ["sha256", "xxh3"])
@pytest.mark.parametrize("text", ["", "AAAA", "%%%", "A" * 44])
def test_digest_tables_that_do_not_fit(victim, field, text):
    victim.forge_manifest(files=(msgspec.structs.replace(victim.manifest.files[0], **{field: text}),))

    victim.refused(errors.LayoutInvalid, "chunk table")


@pytest.mark.parametrize("text", ["", "0" * 64])
def test_a_file_digest_that_is_not_that_of_its_chunks(victim, text):
    victim.forge_manifest(files=(msgspec.structs.replace(victim.manifest.files[0], digest=text),))

    victim.refused(errors.LayoutInvalid, "chunk table")


def test_a_sha256_that_disagrees_with_an_honest_xxh3_is_found_by_full_verification(victim):
    data = victim.data.read_bytes()
    end = victim.manifest.files[0].ends[0]
    good = digest_chunks([memoryview(data)[:end], memoryview(data)[end:]])
    forged = [good[0], ChunkDigest(hashlib.sha256(b"other").digest(), good[1].xxh3)]
    victim.forge_manifest(files=(file_record(victim.data.name, size=len(data), ends=[end, len(data)], digests=forged),))

    mc.load(victim.root)
    with pytest.raises(errors.ChunkMismatch, match="chunk 1"):
        mc.load(victim.root, verify="full")


@pytest.mark.parametrize("node", [["a", 99], ["a", -1], ["zz"], ["d", ["x"]], ["v", 0], [], ["l"], ["a", "0"]])
def test_trees_no_save_has_written(victim, node):
    victim.forge_manifest(tree=["d", ["w", node]])

    with pytest.raises(errors.CheckpointException, match=r"manifest|damaged|verify"):
        mc.load(victim.root)


def test_a_tree_that_names_a_class_never_imports_it(victim):
    victim.forge_manifest(tree=["d", ["w", ["dc", "this:Zen", ["a"], [1]]]])

    import sys

    with pytest.raises(errors.ClassUnavailable, match="this"):
        mc.load(victim.root)
    assert "this" not in sys.modules


NONSENSE = [
    {"created": "yesterday"},
    {"created": "2026-01-01T00:00:00"},
    {"layout": "zip"},
    {"compression": "zip"},
    {"metrics": ["d", ["a", ["f", "zz"]]]},
    {"metrics": ["d", ["a", ["f", "0x1p99999"]]]},
    {"metrics": ["l", [1]]},
    {"metadata": 5},
    {"step": -5},
    {"world_size": 0},
]


@pytest.mark.parametrize("change", NONSENSE, ids=str)
def test_a_manifest_of_nonsense_is_refused_and_spoils_no_other(tmp_path, change):
    mc.save(tmp_path, {"a": 0}, step=0)
    path = Path(mc.save(tmp_path, {"a": 1}, step=1, metrics={"a": 0.5}).path) / "manifest.json"
    path.write_bytes(encode(msgspec.structs.replace(decode(path.read_bytes(), ""), **change)))

    assert [bool(info.problem) for info in mc.list_checkpoints(tmp_path)] == [True, False]
    assert [health.ok for health in mc.verify(tmp_path)] == [False, True]
    with pytest.raises(errors.ManifestInvalid, match="its fields are not those of a manifest"):
        mc.load(tmp_path)
    with pytest.warns(mc.CheckpointWarning, match="passed over"):
        assert mc.load(tmp_path, fallback=True) == {"a": 0}
    assert mc.delete(tmp_path, step=1).prefix == "step-00000001"


def test_a_metric_beyond_every_float_can_be_compared(tmp_path):
    for step, value in enumerate([10.0, 2**2000, float("nan")]):
        mc.save(tmp_path, {"a": step}, step=step, metrics={"n": value})

    assert mc.load(tmp_path, best="max:n") == {"a": 1}


def rows(count):
    row = b'{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    return b"{" + b",".join(b'"%d":%s' % (i, row) for i in range(count)) + b"}"


def test_more_tensors_in_a_header_than_a_reader_grants(victim):
    victim.forge_header(rows(100_002))

    victim.refused(errors.LimitExceeded, "the limit is 100000")


def test_a_tensor_of_absurd_rank_in_a_header(victim):
    victim.forge_header(changed(victim.header(), "w", shape=[1] * 1000))

    victim.refused(errors.LimitExceeded, "has 1000 dimensions, the limit is 64")


@pytest.mark.parametrize("number", [b"1e999", b"Infinity", b"-Infinity", b"9" * 5000, b"1.5", b"true"])
def test_numbers_no_header_has(victim, number):
    victim.forge_header(b'{"w":{"dtype":"F32","shape":[' + number + b'],"data_offsets":[0,32]}}')

    victim.refused(errors.LayoutInvalid, "not readable|twice")


def test_a_header_nested_without_end(victim):
    victim.forge_header(b'{"w":' + b"[" * 100_000 + b"]" * 100_000 + b"}")

    victim.refused(errors.LayoutInvalid, "not readable")


@pytest.mark.parametrize(
    "tail", [b"PK\x05\x06" + bytes(18), b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR."], ids=["zip", "pickle"]
)
def test_a_file_that_is_something_else_as_well(victim, tail):
    victim.data.write_bytes(victim.data.read_bytes() + tail)

    victim.refused(errors.TrailingData, "the manifest says")


def test_the_manifest_of_another_run_is_refused(victim, tmp_path):
    other = mc.save(tmp_path / "other", {"w": np.ones(8, np.float32), "v": np.ones(4, np.float32)}, step=1)
    (victim.data.parent / "manifest.json").write_bytes((Path(other.path) / "manifest.json").read_bytes())

    victim.refused(errors.CorruptedCheckpoint, "step-00000001")


def test_no_room_of_the_engine_can_run_what_it_reads():
    """No pickle, and nothing else that turns data into code."""
    rooms = ("tree", "manifest", "plan", "format", "storage", "engine", "cli")
    sources = [path for room in rooms for path in (Path(mc.__file__).parent / room).rglob("*.py")]
    dangerous = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "eval", "exec", "compile"}

    found = [(path.name, name) for path in sources for name in used_in(path) if name.split(".")[0] in dangerous]

    assert len(sources) > 80
    assert found == []


def used_in(path):
    """Modules a source file imports, and functions it calls by their bare name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id
