"""What many ranks wrote: their own manifests are believed by digest only, and joined ones name every byte once."""

import hashlib

import msgspec
import pytest

from model_checkpoint import errors
from model_checkpoint.manifest import (
    Entry,
    FileCopy,
    FileRecord,
    JoinedManifest,
    Manifest,
    Placement,
    RankManifest,
    RankRecord,
    StoredPiece,
    decode_rank,
    encode_rank,
)

ATTEMPT = "b" * 32
LABEL = {
    "id": "a" * 32,
    "attempt": ATTEMPT,
    "name": "step-00000001",
    "step": 1,
    "created": "2026-01-01T00:00:00+00:00",
    "layout": "multi_shard",
    "compression": "none",
}


def file_of(name, size):
    return FileRecord(name, size, (8, size + 1), "", "", "", identity=f"<{name}>")


def entry(name):
    return Entry(name, "numpy", "float32", (2,), "F32", None, 0, 8, 16, "ff")


def of_rank(**changes):
    fields = {
        "attempt": ATTEMPT,
        "rank": 1,
        "files": (file_of("r1-0.safetensors", 16),),
        "pieces": (StoredPiece(0, "w", (2,), (2,), 0, 8, 16, "ff"),),
    }
    return RankManifest(**fields | changes)


def read(data, *, sha256=None):
    return decode_rank(data, "here", sha256=sha256 or hashlib.sha256(data).hexdigest(), attempt=ATTEMPT)


def test_the_manifest_of_a_rank_comes_back_equal():
    assert read(encode_rank(of_rank())) == of_rank()


def test_the_manifest_of_a_rank_with_another_digest_is_refused():
    data = encode_rank(of_rank())

    with pytest.raises(errors.ManifestInvalid, match=r"its digest is .*, the checkpoint's manifest says 000000000000"):
        read(data, sha256="0" * 64)


@pytest.mark.parametrize("changes", [{"attempt": "c" * 32}, {"format": "model_checkpoint"}])
def test_the_manifest_of_another_save_or_kind_is_refused(changes):
    with pytest.raises(errors.ManifestInvalid, match="it is of another save"):
        read(encode_rank(of_rank(**changes)))


@pytest.mark.parametrize("data", [b"{}", b"[" * 100_000, b'{"attempt":"\xff"}', encode_rank(of_rank())[:-1]])
def test_what_is_no_manifest_of_a_rank_is_refused(data):
    with pytest.raises(errors.ManifestInvalid, match="its fields are not those of one"):
        read(data)


def test_only_a_placement_that_cuts_no_dimension_is_replicated():
    assert Placement().replicated is True
    assert Placement(dim=0).replicated is False


def joined():
    """Array 0 lies as it is, array 1 in two pieces of ranks, which are the entries 2 and 3."""
    return JoinedManifest(
        **LABEL,
        entries=tuple(map(entry, ("whole", "cut", "cut-0", "cut-1"))),
        files=(file_of("r0.safetensors", 16), file_of("r1.safetensors", 24)),
        extras=(file_of("index.json", 7),),
        ranks=(RankRecord("rank-1.json", 9, "", ("r1.safetensors",), (FileCopy(24, 25, "<r1.safetensors>"),)),),
        pieces={1: (((0,), 2), ((2,), 3))},
    )


def test_the_bytes_of_joined_ranks_are_those_of_their_pieces():
    manifest = joined()

    assert [one.name for one in manifest.stored] == ["whole", "cut-0", "cut-1"]
    assert [one.name for one in manifest.stored_of([1, 0])] == ["cut-0", "cut-1", "whole"]


def test_the_bytes_of_one_process_are_those_of_its_entries():
    manifest = Manifest(**LABEL, entries=(entry("a"), entry("b")))

    assert manifest.stored == manifest.entries
    assert [one.name for one in manifest.stored_of([1])] == ["b"]


def test_a_listing_counts_each_file_of_each_rank_once():
    alone = Manifest(
        **{name: getattr(joined(), name) for name in (*LABEL, "extras", "ranks")}, files=joined().files[:1]
    )

    own, index, theirs = (
        FileCopy(16, 17, "<r0.safetensors>"),
        FileCopy(7, 8, "<index.json>"),
        joined().ranks[0].copies[0],
    )
    assert alone.copies == (own, index, theirs)
    assert joined().copies == (own, theirs, index)


def test_every_file_of_a_checkpoint_is_named_once():
    named = ("r0.safetensors", "r1.safetensors", "index.json", "rank-1.json")

    assert joined().file_names == named
    assert msgspec.structs.replace(joined(), parity="pq").file_names == (
        *named,
        f"p-{ATTEMPT}.parity",
        f"q-{ATTEMPT}.parity",
    )
    assert msgspec.structs.replace(joined(), parity="xor").parity_files == (f"p-{ATTEMPT}.parity",)
    assert msgspec.structs.replace(joined(), parity="raid9").parity_files == ()
