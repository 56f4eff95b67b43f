"""Which store answers to which root."""

import pytest

from model_checkpoint.errors import CheckpointException, UnsafeName
from model_checkpoint.storage import InMemoryStore, LocalStore, UnknownScheme, open_store
from model_checkpoint.testing.blobs import save_blobs


def test_a_path_is_a_local_store_and_stays_where_it_was_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_store("runs/a")
    monkeypatch.chdir("/")

    assert isinstance(store, LocalStore)
    assert store.url == f"{tmp_path}/runs/a"
    assert open_store(tmp_path).url == str(tmp_path)


def test_opening_creates_nothing(tmp_path):
    assert not open_store(tmp_path / "runs").exists()
    assert not (tmp_path / "runs").exists()


def test_a_memory_url_is_shared_in_the_process():
    save_blobs(open_store("memory://test-locate/a"), "step-1", {"x": b"abc"})

    assert isinstance(open_store("memory://test-locate/a"), InMemoryStore)
    assert open_store("memory://test-locate/a").names() == ["step-1"]
    assert open_store("memory://test-locate/b").names() == []


@pytest.mark.parametrize("url", ["ftp://host/x", "S9://bucket", "http://localhost/"])
def test_an_unknown_scheme_is_refused_by_name(url):
    with pytest.raises(UnknownScheme, match=r"unknown scheme '\w+', expected a path or memory://name") as error:
        open_store(url)

    assert isinstance(error.value, CheckpointException)
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize("url", ["memory://", "memory://a//b", "memory://../x", "memory://a b"])
def test_a_memory_url_needs_a_safe_name(url):
    with pytest.raises(UnsafeName, match=r"is not safe"):
        open_store(url)
