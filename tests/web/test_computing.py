"""Work that takes long, on the pages that wait for it: how far it is, then its answer without another visit."""

import threading

import numpy as np
import pytest
from tests.web.conftest import serving

import model_checkpoint as mc
from model_checkpoint.storage.local.syscalls import Syscalls

pytestmark = pytest.mark.slow

BIG = 1 << 20  # bytes of a read that waits: those of tensors, not of manifests


@pytest.fixture
def reads(monkeypatch):
    """Every large read of this process waits at the shim until it is let through."""
    let_through, read = threading.Semaphore(0), Syscalls.preadv

    def held(self, fd, buffer, offset):
        if len(buffer) >= BIG:
            assert let_through.acquire(timeout=60)
        return read(self, fd, buffer, offset)

    monkeypatch.setattr(Syscalls, "preadv", held)
    yield let_through
    let_through.release(1000)  # whoever still waits ends


@pytest.fixture
def two(tmp_path):
    """Two checkpoints of three large tensors each, in a catalog; their ids."""
    url = f"sqlite:///{tmp_path}/experiments.db"
    with (
        mc.ExperimentTracker("a", "b", database_url=url) as run,
        mc.EnhancedCheckpointManager(run, tmp_path / "root", max_checkpoints=None) as manager,
    ):
        for step in (1, 2):
            state = {f"w{n}": np.full(1 << 20, step * n, np.float32) for n in range(1, 4)}
            manager.save_checkpoint({"model": state}, step=step)
        return [row.id for row in manager.list_checkpoints()]


@pytest.mark.parametrize("page", ["checkpoint", "diff"])
def test_a_page_shows_how_far_its_work_is_and_then_what_was_found(two, tmp_path, visit, reads, page):
    newer, older = two
    route = f"/checkpoint/{newer}?tab=tensors" if page == "checkpoint" else f"/diff?a={older}&b={newer}"
    with serving([str(tmp_path)], tmp_path / "cache") as address:
        visitor = visit(address).open(route)
        share = visitor.tab.locator(".computing [role=progressbar]")
        share.wait_for()
        seen = [share.get_attribute("aria-valuenow")]
        reads.release(2 if page == "diff" else 1)  # the first tensor, of one checkpoint or of both
        visitor.tab.locator(".computing [role=progressbar]:not([aria-valuenow='0'])").wait_for()
        seen.append(share.get_attribute("aria-valuenow"))
        visitor.shoot(f"computing-{page}")
        reads.release(1000)
        visitor.tab.locator(".computing").wait_for(state="detached")  # which names the tensor it is at
        visitor.tab.get_by_text("w3").first.wait_for()

        assert seen == ["0", "33"]
        assert all(visitor.tab.get_by_text(name).count() for name in ("w1", "w2"))
