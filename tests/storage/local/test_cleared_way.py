"""What stands in the way of a checkpoint that comes back is cleared, unless it is a checkpoint or no folder."""

import pytest

from model_checkpoint.storage.local.paths import RootPaths
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.storage.local.trash import clear_the_way
from model_checkpoint.testing.blobs import save_blobs


@pytest.mark.parametrize(
    ("stands", "clear"), [("nothing", True), ("leavings", True), ("a file", False), ("a checkpoint", False)]
)
def test_only_leavings_are_cleared_away_and_where_nothing_stands_the_way_is_clear(tmp_path, stands, clear):
    """What stood there may have gone by itself before it is looked at."""
    store = LocalStore(tmp_path)
    save_blobs(store, "step-1", {"x": b"abc"})
    name = "step-1" if stands == "a checkpoint" else "step-2"
    if stands == "leavings":
        (tmp_path / "checkpoints" / name).mkdir()
        (tmp_path / "checkpoints" / name / "x").write_bytes(b"left")
    elif stands == "a file":
        (tmp_path / "checkpoints" / name).write_bytes(b"")

    assert clear_the_way(RootPaths(str(tmp_path), Syscalls()), name) is clear

    assert not (tmp_path / "checkpoints" / "step-2" / "x").exists()
    assert store.names() == ["step-1"]
