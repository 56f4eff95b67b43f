"""What a lost chunk takes with it is named: every tensor that has bytes in it, and no other."""

import numpy as np
import pytest
from tests.engine.repairing.repair_ground import CHUNK, save
from tests.ground.stored.stored_files import flip as flip_in_place
from tests.ground.stored.stored_files import folder, manifest_of

import model_checkpoint as mc
from model_checkpoint import CheckpointFormat

pytestmark = pytest.mark.usefixtures("small_chunks")


def test_a_lost_chunk_names_the_tensors_in_it_and_that_of_the_header_all_of_the_file(tmp_path):
    rng = np.random.default_rng(0)
    tensors = {f"w{i}": rng.integers(0, 256, CHUNK // 3 + 100 * i, dtype=np.uint8) for i in range(9)}
    save(tmp_path, tensors, format=CheckpointFormat.SINGLE_FILE)
    manifest = manifest_of(tmp_path)
    (record,), entries = manifest.files, manifest.entries
    bounds = list(zip([0, *record.ends], record.ends, strict=False))
    assert len(bounds) > 3

    for number, (start, stop) in enumerate(bounds):
        flip_in_place(folder(tmp_path) / record.name, stop - 1)
        (lost,) = mc.repair(tmp_path, dry_run=True).lost
        flip_in_place(folder(tmp_path) / record.name, stop - 1)

        inside = [e.name for e in entries if e.start < stop and e.stop > start]
        assert len(inside) < len(entries)
        assert (lost.chunk, list(lost.tensors)) == (number, inside if number else [e.name for e in entries])
