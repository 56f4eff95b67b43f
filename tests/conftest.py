"""What tests of several rooms stand on."""

import contextlib

import pytest

from tests.ground.power import Disk, PowerUnavailable


@pytest.fixture(params=["ext4", "xfs"])
def disk(request, tmp_path):
    """A small file system of its own, whose power can be cut."""
    try:
        disk = Disk(tmp_path, request.param)
    except PowerUnavailable as error:
        pytest.skip(str(error))
    yield disk
    with contextlib.suppress(PowerUnavailable):
        disk.unmount()
