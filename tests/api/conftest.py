"""What the tests of the server stand on: a catalog built once, copies of it to change, and a client behind the gate."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.ground.big_catalog import build_catalog
from tests.ground.served import Server

from model_checkpoint.api.library.shelves import Library
from model_checkpoint.database import EnhancedDatabaseConnection


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
def by_pages(reader):
    """The ids of a list, put together from its pages."""

    def fetch(path, **options):
        found, cursor = [], ""
        while cursor is not None:
            page = reader.get(path, params={**options, "cursor": cursor}).json()
            found += [row["id"] for row in page["rows"]]
            cursor = page["next"]
        return found

    return fetch


@pytest.fixture
def made(built, tmp_path):
    """A copy of the catalog that may be changed, with its real checkpoints at their new place."""
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
