"""A file that is written appears whole or not at all, whenever its writer is killed."""

import sys

import pytest
from tests.ground.crowds import in_child

from model_checkpoint.performance import BulkDataExporter
from model_checkpoint.performance.atomic_file import atomic_write
from model_checkpoint.testing.faults import KILLED

KILL = """
import os, signal, sys
from model_checkpoint.performance import BulkDataExporter
import model_checkpoint.performance.atomic_file as room, model_checkpoint.performance.bulk_export as export
import model_checkpoint.performance.row_formats, model_checkpoint.performance.parquet_rows
path, at = sys.argv[1], int(sys.argv[2])
seen = 0
def trace(frame, event, arg):
    global seen
    if frame.f_code.co_filename not in (room.__file__, export.__file__):
        return None
    if event == "line":
        seen += 1
        if seen == at:
            os._exit(137)
    return trace
rows = BulkDataExporter(lambda: ({"step": n} for n in range(3)))
sys.settrace(trace)
rows.export(path, overwrite=True)
sys.settrace(None)
"""


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.parametrize("old", [None, "step\r\nold\r\n"], ids=["new", "over an old one"])
def test_a_kill_at_any_line_leaves_the_old_file_or_the_new_one_whole(tmp_path, old):
    """And the next export clears away what the dead one left."""
    path, whole = tmp_path / "x.csv", b"step\r\n0\r\n1\r\n2\r\n"
    outcomes, at = set(), 1
    while True:
        for leaving in tmp_path.iterdir():
            leaving.unlink()
        if old is not None:
            path.write_bytes(old.encode())
        done = in_child(export, path, at)
        found = path.read_bytes() if path.exists() else None
        assert found in (None if old is None else old.encode(), whole), at
        outcomes.add(found)
        if done == 0:
            break
        assert done == KILLED
        BulkDataExporter(lambda: [{"step": 7}]).export(path, overwrite=True)
        assert [one.name for one in tmp_path.iterdir()] == ["x.csv"], at
        at += 1

    assert at > 20
    assert whole in outcomes
    assert len(outcomes) == 2


def export(path, at):
    """Run the export; in a fork, which has everything imported already."""
    sys.argv = ["kill", str(path), str(at)]
    exec(compile(KILL, "kill", "exec"), {})


def test_the_draft_of_a_living_export_is_not_cleared_away(tmp_path):
    path = tmp_path / "x.csv"

    with atomic_write(path) as first:
        first.write(b"first")
        BulkDataExporter(lambda: [{"a": 1}]).export(path)
        drafts = [one.name for one in tmp_path.iterdir() if one.suffix == ".part"]
        assert len(drafts) == 1
        path.unlink()
    assert path.read_bytes() == b"first"
