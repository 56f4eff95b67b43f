"""The manifests of ranks come back like any other file, for without them nobody knows what is in the rest."""

import numpy as np
import pytest
from tests.distributed.test_save_on_ranks import marked
from tests.distributed.threads import all_well, on_ranks
from tests.engine.repairing.repair_ground import content, flip
from tests.ground.stored.stored_files import folder

import model_checkpoint as mc

ROWS = np.arange(4000.0).reshape(2000, 2)


def save(root, **options):
    def work(ranks):
        rows = marked(ROWS, (1000 * ranks.rank, 0), (1000, 2))
        mc.save(root, {"rows": rows, "same": np.arange(7)}, step=1, coordinator=ranks, **options)

    all_well(on_ranks(2, work))
    mc.finish_saves()


def rank_manifest(root):
    return sorted(folder(root).glob("rank-1*.json"))[0]


def damaged(path, how):
    if how == "gone":
        path.unlink()
    else:
        flip(path, 40)


@pytest.mark.parametrize("how", ["flipped", "gone"])
def test_a_rank_manifest_comes_back_from_the_sum(tmp_path, how):
    save(tmp_path, parity="xor")
    before, path = content(tmp_path), rank_manifest(tmp_path)
    damaged(path, how)

    dry = mc.repair(tmp_path, dry_run=True)
    untouched = not path.exists() or path.read_bytes() != before[path.name]
    report = mc.repair(tmp_path)

    assert untouched
    assert [(one.ok, [file.file for file in one.repaired]) for one in (dry, report)] == [(True, [path.name])] * 2
    assert content(tmp_path) == before
    assert np.array_equal(mc.load(tmp_path)["rows"], ROWS)


def test_a_rank_manifest_comes_back_from_the_mirror_and_from_a_named_root(tmp_path):
    root, mirror, other = tmp_path / "root", tmp_path / "mirror", tmp_path / "other"
    save(root, mirror=mirror)
    before, path = content(root), rank_manifest(root)

    damaged(path, "flipped")
    by_itself = mc.repair(root)
    after = content(root)
    mirror.rename(other)
    damaged(rank_manifest(root), "flipped")
    without = mc.repair(root)
    named = mc.repair(root, source=other)

    assert (by_itself.ok, without.ok, named.ok) == (True, False, True)
    assert [one.file for one in without.lost] == [path.name]
    assert before == after == content(root)


def test_a_rank_manifest_that_nobody_else_has_is_named_as_lost_and_nothing_is_touched(tmp_path):
    save(tmp_path)
    damaged(rank_manifest(tmp_path), "flipped")
    before = content(tmp_path)

    report = mc.repair(tmp_path)

    assert (report.ok, report.repaired) == (False, ())
    assert [(one.checkpoint, one.file) for one in report.lost] == [("step-00000001", rank_manifest(tmp_path).name)]
    assert content(tmp_path) == before
