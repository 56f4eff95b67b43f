"""A repair believes no manifest that a reader would refuse, and touches nothing by it."""

import re

import msgspec
import pytest
from tests.engine.repairing.repair_ground import content, save, state
from tests.ground.stored.stored_files import folder, manifest_of

import model_checkpoint as mc
from model_checkpoint.manifest import encode

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.mark.parametrize(
    ("forged", "told"),
    [
        ({"name": "../outside"}, r"names a file '\.\./outside'"),
        ({"digest": "00" * 32}, "chunk table of .* does not fit"),
        ({"size": 7}, "chunk table of .* does not fit"),
    ],
    ids=["name", "digest", "size"],
)
def test_a_manifest_signed_anew_whose_files_cannot_be_is_lost_and_nothing_is_touched(tmp_path, forged, told):
    save(tmp_path, state(parts=2))
    manifest = manifest_of(tmp_path)
    files = (msgspec.structs.replace(manifest.files[0], **forged), *manifest.files[1:])
    (folder(tmp_path) / "manifest.json").write_bytes(encode(msgspec.structs.replace(manifest, files=files)))
    before = content(tmp_path)

    report = mc.repair(tmp_path)

    ((file, reason),) = [(one.file, one.reason) for one in report.lost]
    assert file == "manifest.json"
    assert re.search(told, reason)
    assert report.repaired == ()
    assert content(tmp_path) == before
