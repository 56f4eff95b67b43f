"""Requirements: what a test needs of the machine, and what becomes of it where that is missing."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip the test; fail it where everything must be there, since nobody reads of a skip in a green run."""
    if os.environ.get("MCKPT_REQUIRE_SERVERS"):
        pytest.fail(reason)
    pytest.skip(reason)


def without_power(reason: str) -> NoReturn:
    """The same for a disk whose power can be cut; a machine that has no loop devices cannot be asked for one."""
    if os.geteuid() == 0 and os.access("/dev/loop-control", os.R_OK | os.W_OK):
        missing(reason)
    pytest.skip(reason)
