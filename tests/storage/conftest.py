"""Object store servers, started once for each worker that needs one, and a root of its own for each test."""

import shutil

import pytest
from tests.ground import object_servers
from tests.ground.requirements import missing


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seaweedfs")
    with object_servers.seaweedfs(folder) as server:
        server.make_bucket("bucket")
        yield server
    shutil.rmtree(folder, ignore_errors=True)  # gigabytes: it keeps what was deleted


@pytest.fixture(scope="session")
def azurite(tmp_path_factory):
    """The server of Azure blobs; what needs it says so where npm could not install it."""
    try:
        with object_servers.azurite(tmp_path_factory.mktemp("azurite")) as server:
            server.make_bucket("bucket")
            yield server
    except FileNotFoundError as error:
        missing(f"{error}: run tests/install_servers.sh")


@pytest.fixture
def root(tmp_path):
    return f"s3://bucket/rules/{tmp_path.name}"
