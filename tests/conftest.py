"""What tests of several rooms stand on."""

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.ground import object_servers
from tests.ground.disks.power import Disk, PowerUnavailable
from tests.ground.rank_zygote import Zygote
from tests.ground.requirements import without_power

# a busy machine is no failure: properties are judged by what they find, never by the clock
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(params=["ext4", "xfs"])
def disk(request, tmp_path):
    """A small file system of its own, whose power can be cut."""
    try:
        disk = Disk(tmp_path, request.param)
    except PowerUnavailable as error:
        without_power(str(error))
    yield disk
    with contextlib.suppress(PowerUnavailable):
        disk.unmount()


@pytest.fixture
def quick_folder(tmp_path):
    """A folder in memory: a kill leaves the page cache as it is, so a disk would only make the tests slower."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of one megabyte."""
    mount_point = tmp_path / "tiny"
    mount_point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount_point)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield mount_point
    subprocess.run(["umount", str(mount_point)], check=True)


@pytest.fixture(scope="session")
def moto(tmp_path_factory):
    """A quick S3 server with an empty bucket; each test keeps to a root of its own in it."""
    with object_servers.moto(tmp_path_factory.mktemp("moto")) as server:
        server.make_bucket("bucket")
        yield server


@pytest.fixture(scope="session")
def zygote():
    """Forks groups of real processes that have torch imported, as ranks joined by gloo."""
    scenes = ("tests.distributed.scenes", "tests.distributed.faults.fault_scenes", "tests.distributed.api.api_scenes")
    made = Zygote(*scenes, "tests.integrations.dcp.dcp_scenes", "tests.integrations.loop.loop_ranks")
    yield made
    made.close()


@pytest.fixture
def tell_figure(record_property):
    """Notes a measured figure; all of them stand at the end of the run, whoever of its workers measured."""

    def tell(name: str, seconds: float) -> None:
        record_property("figure", f"{name}: {seconds:.2f} s")

    return tell


def pytest_collection_modifyitems(items):
    """Ranks that die and hang are waited for longest: they go first, or one worker is left with them at the end."""
    items.sort(key=lambda item: "tests/distributed/faults/" not in item.nodeid)


def pytest_terminal_summary(terminalreporter):
    """Figures are printed, not asserted: workers hand on what a passing test notes, not what it prints."""
    reports = [one for kind in ("passed", "failed") for one in terminalreporter.stats.get(kind, [])]
    figures = [(one.nodeid, value) for one in reports for name, value in one.user_properties if name == "figure"]
    if figures:
        terminalreporter.section("figures")
    for test, figure in figures:
        terminalreporter.write_line(f"{figure}  ({test.rpartition('::')[2]})")
