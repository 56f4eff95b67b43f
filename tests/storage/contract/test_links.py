"""Every store of ours can share a file between checkpoints."""

import errno
import secrets

import pytest
from tests.storage.local.faults.failing_calls import FailingCalls

from model_checkpoint.errors import StorageFailure
from model_checkpoint.storage import InMemoryStore, LocalStore
from model_checkpoint.testing.blobs import save_blobs
from model_checkpoint.testing.link_suite import LinkSuite


class TestLocalLinks(LinkSuite):
    def make_store(self, folder):
        return LocalStore(folder / "runs" / "a")


class TestMemoryLinks(LinkSuite):
    salt = secrets.token_hex(4)  # the registry outlives a test; tmp_path names may come again in another run

    def make_store(self, folder):
        return InMemoryStore(f"memory://{self.salt}/{folder.name}")


def try_link(tmp_path, code):
    save_blobs(LocalStore(tmp_path), "step-1", {"x": b"one"})
    store = LocalStore(tmp_path, calls=FailingCalls().fail("link", code))
    stage = store.stage("step-2", "a2")
    try:
        return stage.link("x-a2", source="step-1", source_file="x", identity=store.stamps("step-1")["x"].identity)
    finally:
        stage.abort()


@pytest.mark.parametrize("code", [errno.EMLINK, errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.ENOENT, errno.EACCES])
def test_a_medium_without_links_says_so_quietly(tmp_path, code):
    assert try_link(tmp_path, code) is False


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.ESTALE])
def test_any_other_failure_to_link_is_told(tmp_path, code):
    with pytest.raises(StorageFailure, match="could not be linked to"):
        try_link(tmp_path, code)


def test_a_symlink_in_place_of_the_file_is_not_linked(tmp_path):
    store = LocalStore(tmp_path)
    save_blobs(store, "step-1", {"x": b"one"})
    path = tmp_path / "checkpoints" / "step-1" / "x"
    identity = store.stamps("step-1")["x"].identity
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    stage = store.stage("step-2", "a2")

    assert stage.link("x-a2", source="step-1", source_file="x", identity=identity) is False
    assert stage.stamps() == {}
    stage.abort()
