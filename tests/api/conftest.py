"""What the tests of the server stand on: a catalog built once, copies of it to change, and a client behind the gate."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.ground.big_catalog import build_catalog

from model_checkpoint.api.application import make_app
from model_checkpoint.api.gate.admission import Admission
from model_checkpoint.api.library.shelves import Library

TOKEN = "a-token-for-tests"


class Server(TestClient):
    """A server in this process, and the library it serves."""

    def __init__(self, library: Library, *, token: str = TOKEN, given: str | None = TOKEN) -> None:
        self.library = library
        app = make_app(library, Admission(hosts=frozenset({"testserver"}), token=token))
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {given}"} if given else {})
        super().__init__(app, headers=headers, raise_server_exceptions=False)

    def job(self, job_id: str) -> dict:
        """A job, once it is over."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            job = self.get(f"/api/jobs/{job_id}").json()
            if job["state"] not in ("queued", "running"):
                return job
            time.sleep(0.01)
        raise TimeoutError(job_id)

    def ready(self, address: str) -> dict:
        """A document that a job makes, once it is made."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            document = self.get(address).json()
            if document["state"] != "computing":
                return document
            time.sleep(0.01)
        raise TimeoutError(address)


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A catalog with 13 runs, made once; only to be read."""
    return build_catalog(tmp_path_factory.mktemp("catalog") / "runs", runs=12, checkpoints=120, points=6000)


@pytest.fixture(scope="session")
def reader(built, tmp_path_factory):
    """A server of it."""
    cache = str(tmp_path_factory.mktemp("cache"))
    with Library([str(built.folder)], cache_dir=cache) as library, Server(library) as server:
        yield server


@pytest.fixture
def made(built, tmp_path):
    """A copy of the catalog that may be changed, with its real checkpoints at their new place."""
    from model_checkpoint.database import EnhancedDatabaseConnection

    folder = tmp_path / "runs"
    shutil.copytree(built.folder, folder)
    url = f"sqlite:///{folder}/experiments.db"
    with EnhancedDatabaseConnection(url) as connection:
        for id in built.real_checkpoints:
            row = connection.get_checkpoint(id)
            path = row.file_path.replace(str(built.root), str(folder / "real"))
            connection.update_checkpoint(id, root=str(folder / "real"), file_path=path)
    return replace(built, url=url, folder=Path(folder), root=folder / "real")


@pytest.fixture
def server(made, tmp_path):
    """A server of the copy, which may change it."""
    with Library([str(made.folder)], cache_dir=str(tmp_path / "cache")) as library, Server(library) as server:
        yield server
