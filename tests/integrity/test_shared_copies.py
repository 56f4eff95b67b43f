"""What checkpoints share by link is one copy: a scrub reads it once, and tells its damage of each that has it."""

import os
from collections import Counter

import msgspec
import numpy as np
import pytest
from tests.ground.stored.stored_files import flip, folder
from tests.integrity.verified_runs import catalog_of

import model_checkpoint as mc
from model_checkpoint.engine.reading import verify as verifying
from model_checkpoint.integrity import CheckpointVerifier
from model_checkpoint.manifest import decode, encode

FROZEN = np.random.default_rng(0).standard_normal(700_000)  # 5.6 MB, two chunks


@pytest.fixture
def linked(tmp_path):
    """Five checkpoints, four of which have one copy of the frozen tensor."""
    for step in range(1, 6):
        mc.save(tmp_path / "run", {"frozen": FROZEN, "head": np.full(9, step)}, step=step, incremental=True)
    return tmp_path / "run"


@pytest.fixture
def bytes_read(monkeypatch):
    """Bytes read so far, by the number of the file on the medium."""
    real, read = os.preadv, Counter()

    def counting(fd, buffers, offset, *flags):
        count = real(fd, buffers, offset, *flags)
        read[os.fstat(fd).st_ino] += count
        return count

    monkeypatch.setattr(os, "preadv", counting)
    return read


def shared_file(root):
    return max(folder(root, 5).glob("*.safetensors"), key=lambda path: path.stat().st_nlink)


@pytest.mark.parametrize("whole", ["scrub", "verify"])
def test_a_copy_that_checkpoints_share_is_read_once(linked, tmp_path, bytes_read, whole):
    shared = shared_file(linked)
    assert shared.stat().st_nlink == 4
    bytes_read.clear()

    if whole == "verify":
        found = mc.verify(linked)
    else:
        with catalog_of(tmp_path, linked) as database:
            bytes_read.clear()
            found = CheckpointVerifier(database).scrub().verdicts

    assert all(one.ok for one in found)
    assert FROZEN.nbytes <= bytes_read[shared.stat().st_ino] < FROZEN.nbytes * 1.1  # its header is read with each
    assert sum(one.bytes_read for one in found) < 2.2 * FROZEN.nbytes  # the first one's file, and the shared one


def test_damage_of_a_shared_copy_is_told_of_every_checkpoint_that_has_it(linked):
    flip(shared_file(linked))

    healths = mc.verify(linked)

    assert [health.info.step for health in healths if not health.ok] == [5, 4, 3, 2]
    assert [damage.tensors for health in healths for damage in health.damage] == [["frozen"]] * 4
    assert all(health.info.path in health.damage[0].problem for health in healths if not health.ok)


def test_a_header_is_compared_with_each_manifest_though_its_bytes_are_known(linked):
    path = folder(linked, 2) / "manifest.json"
    manifest = decode(path.read_bytes(), "here")
    other = [msgspec.structs.replace(one, dtype="int64", stored="I64") for one in manifest.entries]
    path.write_bytes(encode(msgspec.structs.replace(manifest, entries=tuple(other))))

    (health,) = [health for health in mc.verify(linked) if not health.ok]

    assert health.info.step == 2
    assert "'frozen' is ('F64'" in health.damage[0].problem


def test_a_copy_that_was_replaced_while_it_was_read_is_not_taken_for_known(linked, monkeypatch):
    """Repair puts a new file in the place of the damaged one; the other names still mean the damaged one."""
    shared = shared_file(linked)
    whole = shared.read_bytes()
    flip(shared)
    real, once = verifying._examine_file, []

    def mended_meanwhile(medium, manifest, index, meter):
        if not once and manifest.files[index].name == shared.name:
            once.append(True)
            os.unlink(shared)
            shared.write_bytes(whole)
        return real(medium, manifest, index, meter)

    monkeypatch.setattr(verifying, "_examine_file", mended_meanwhile)

    assert [health.info.step for health in mc.verify(linked) if not health.ok] == [4, 3, 2]
    assert once
