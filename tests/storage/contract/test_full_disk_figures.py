"""A full disk is told with figures where they are known, and without where they are not."""

import errno

import pytest

from model_checkpoint.errors import DiskFull
from model_checkpoint.storage.contract.failures import typed_errors


def broken():
    raise OSError(errno.EIO, "the disk does not answer")


@pytest.mark.parametrize(("room", "told"), [(None, (0, 0)), (broken, (0, 0)), (lambda: (7, 3), (7, 3))])
def test_figures_of_a_full_disk_are_those_that_are_known(room, told):
    with (
        pytest.raises(DiskFull, match=r"^here: could not write") as caught,
        typed_errors("here", "could not write", room=room),
    ):
        raise OSError(errno.ENOSPC, "full")

    assert (caught.value.needed, caught.value.free) == told
