"""A damaged manifest comes back byte for byte, or stays as it is; one of another state is never put there."""

import shutil

import pytest
from tests.engine.repairing.repair_ground import content, data_files, flip, save, state
from tests.ground.stored.equal_values import same
from tests.ground.stored.stored_files import folder

import model_checkpoint as mc
from model_checkpoint.storage.local.store import LocalStore

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.mark.parametrize("with_parity", [True, False])
def test_a_damaged_manifest_comes_back_byte_for_byte(tmp_path, with_parity):
    save(tmp_path / "a", state(), parity="pq" if with_parity else None)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    before = content(tmp_path / "a")
    flip(folder(tmp_path / "a") / "manifest.json", 300)
    flip(folder(tmp_path / "a") / data_files(tmp_path / "b")[0], 9000)

    report = mc.repair(tmp_path / "a", source=None if with_parity else tmp_path / "b")

    assert report.ok
    assert [one.file for one in report.repaired] == ["manifest.json", data_files(tmp_path / "b")[0]]
    assert content(tmp_path / "a") == before
    assert len(list((tmp_path / "a" / ".trash").glob("*/manifest.replaced"))) == 1
    assert LocalStore(tmp_path / "a").trash() == []


def test_the_manifest_of_a_state_without_arrays_comes_back_too(tmp_path):
    """There is no data file by which to know that it belongs here; the parity files are enough."""
    save(tmp_path, {"epoch": 3}, parity="pq")
    before = content(tmp_path)
    flip(folder(tmp_path) / "manifest.json", 300)

    report = mc.repair(tmp_path)

    assert [one.file for one in report.repaired] == ["manifest.json"]
    assert content(tmp_path) == before


def test_a_manifest_of_another_state_is_never_put_there(tmp_path):
    save(tmp_path / "a", state(0))
    save(tmp_path / "b", state(1))
    flip(folder(tmp_path / "a") / "manifest.json", 300)
    hurt = content(tmp_path / "a")

    report = mc.repair(tmp_path / "a", source=tmp_path / "b")

    assert [one.file for one in report.lost] == ["manifest.json"]
    assert "no tensor of it can be named" in report.lost[0].reason
    assert content(tmp_path / "a") == hurt


def test_a_checkpoint_saved_anew_during_the_repair_of_its_manifest_stays(tmp_path, monkeypatch):
    save(tmp_path, state(0), parity="pq")
    flip(folder(tmp_path) / "manifest.json", 300)
    found = mc.engine.repairing.repair.find_manifest

    def slow(*args):
        answer = found(*args)
        mc.save(tmp_path, state(1), step=1, overwrite="damaged")
        return answer

    monkeypatch.setattr("model_checkpoint.engine.repairing.repair.find_manifest", slow)

    assert mc.repair(tmp_path).ok
    assert same(mc.load(tmp_path, verify="full"), state(1))
