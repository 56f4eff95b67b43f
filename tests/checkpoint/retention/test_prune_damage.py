"""Damage and retention: what cannot be used takes nobody's place; what several share is counted once."""

import hashlib
import shutil

from tests.checkpoint.retention.retention_ground import fill_linked
from tests.ground.stored.stored_files import data_file

import model_checkpoint as mc
from model_checkpoint.engine.root.shared_files import stored_bytes


def spoil_manifest(folder, step):
    (folder / f"checkpoints/step-{step:08d}/manifest.json").write_bytes(b"noise")


def test_the_newest_that_cannot_be_used_takes_no_place_among_the_last(folder):
    spoil_manifest(folder, 6)
    data_file(folder, 5).unlink()
    data_file(folder, 4).write_bytes(data_file(folder, 4).read_bytes()[:-1])

    plan = mc.prune(folder, keep=[mc.last(2)])

    assert [one.candidate.step for one in plan.kept if one.candidate.healthy] == [3, 2]
    assert plan.done == ("step-00000001",)
    assert "damaged, may be repaired" in plan.decisions[0].reasons[0]
    assert "1 of its 1 files are gone or have another size" in plan.decisions[1].reasons[0]


def test_damaged_ones_go_if_so_asked_and_come_back_as_they_were(folder):
    spoil_manifest(folder, 6)

    assert mc.prune(folder, keep=[mc.last(9)], damaged="drop").done == ("step-00000006",)
    mc.undelete(folder, name="step-00000006")
    assert (folder / "checkpoints/step-00000006/manifest.json").read_bytes() == b"noise"


def test_a_damaged_one_that_may_be_the_pinned_one_stays(folder):
    mc.pin(folder, step=6)
    spoil_manifest(folder, 6)

    plan = mc.prune(folder, keep=[mc.last(9)], damaged="drop")

    assert plan.done == ()
    assert plan.decisions[0].reasons == ("it may be the one that is pinned: a pin has no other",)


def test_what_a_newer_release_wrote_is_no_damage(folder):
    manifest = folder / "checkpoints/step-00000003/manifest.json"
    line = manifest.read_bytes().partition(b"\n")[0].replace(b'"min_reader":1', b'"min_reader":9')
    manifest.write_bytes(line + b"\n" + hashlib.sha256(line).hexdigest().encode())

    assert "step-00000003" not in mc.prune(folder, keep=[mc.last(1)], damaged="drop").done


def test_shared_files_are_freed_only_with_the_last_that_holds_them(tmp_path):
    fill_linked(tmp_path, range(1, 5))
    before = stored_bytes(tmp_path)

    plan = mc.prune(tmp_path, keep=[mc.budget(before - 1)], grace=0)

    assert plan.done == ("step-00000001",)
    assert plan.freed_bytes == before - stored_bytes(tmp_path)
    assert 0 < plan.freed_bytes < 10_000
    assert mc.load(tmp_path, step=2)["frozen"][-1] == 199_999


def test_a_copied_root_shares_nothing_and_is_counted_so(tmp_path):
    fill_linked(tmp_path / "a", [1, 2])
    shutil.copytree(tmp_path / "a", tmp_path / "b")

    assert mc.prune(tmp_path / "a", keep=[mc.last(1)], dry_run=True).freed_bytes < 10_000
    assert mc.prune(tmp_path / "b", keep=[mc.last(1)], dry_run=True).freed_bytes > 800_000
