"""What `mckpt reindex` would do is told before it is done."""

import json

import numpy as np

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
