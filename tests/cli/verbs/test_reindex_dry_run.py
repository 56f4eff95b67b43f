"""What `mckpt reindex` would do is told before it is done."""

import json
import shutil

import numpy as np
import pytest

import model_checkpoint as mc


def test_a_dry_run_of_a_reindex_tells_what_would_be_recorded_and_makes_nothing(tmp_path, mckpt):
    root = tmp_path / "run"
    for step in (1, 2):
        mc.save(root, {"w": np.zeros(2)}, step=step)
    before = sorted(path.name for path in root.iterdir())

    told = mckpt("reindex", root, "--dry-run")

    assert told.code == 0
    assert "would record 2 checkpoints of 1 run" in " ".join(told.out.split())
    assert sorted(path.name for path in root.iterdir()) == before


def test_a_dry_run_of_a_reindex_marks_no_row(tmp_path, mckpt):
    root = tmp_path / "run"
    for step in (1, 2):
        mc.save(root, {"w": np.zeros(2)}, step=step)
    assert mckpt("reindex", root).code == 0
    mc.delete(root, step=1)

    dry = json.loads(mckpt("reindex", root, "--dry-run", "--json").out)
    done = json.loads(mckpt("reindex", root, "--json").out)

    assert (dry["gone"], dry["dry_run"]) == (1, True)
    assert (done["gone"], done["dry_run"]) == (1, False)


@pytest.mark.parametrize("made", [(), ("checkpoints", ".staging")], ids=["an empty folder", "a root nobody saved to"])
def test_where_there_is_nothing_to_index_no_catalog_is_made(tmp_path, mckpt, made):
    """A path that was mistyped must not look like a run from then on."""
    for name in made:
        (tmp_path / name).mkdir()

    for words in ((), ("--dry-run",), ("--database", f"sqlite:///{tmp_path}/other.db")):
        told = mckpt("reindex", tmp_path, *words)

        assert (told.code, told.out) == (3, "")
        assert "no committed checkpoint here" in told.err
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(made)


def test_a_root_whose_last_checkpoint_is_gone_is_indexed_all_the_same(tmp_path, mckpt):
    """Its catalog must learn of that."""
    root = tmp_path / "run"
    mc.save(root, {"a": 1}, step=1)
    assert mckpt("reindex", root).code == 0
    shutil.rmtree(root / "checkpoints" / "step-00000001")

    told = mckpt("reindex", root, "--json")

    assert (told.code, json.loads(told.out)["gone"]) == (0, 1)
