"""What a test needs and does not find is a skip on anybody's machine, and a failure where everything must be there."""

import os

import pytest

from tests.ground.requirements import missing, without_power


def test_what_is_missing_fails_only_where_everything_must_be_there(monkeypatch):
    monkeypatch.delenv("MCKPT_REQUIRE_SERVERS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no server"):
        missing("no server")

    monkeypatch.setenv("MCKPT_REQUIRE_SERVERS", "1")
    with pytest.raises(pytest.fail.Exception, match="no server"):
        missing("no server")


@pytest.mark.parametrize(("root", "ending"), [(True, pytest.fail), (False, pytest.skip)])
def test_a_disk_whose_power_can_be_cut_is_asked_for_where_there_are_loop_devices(monkeypatch, root, ending):
    monkeypatch.setenv("MCKPT_REQUIRE_SERVERS", "1")
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    monkeypatch.setattr(os, "access", lambda path, mode: path == "/dev/loop-control")

    with pytest.raises(ending.Exception, match="no mkfs"):
        without_power("no mkfs")
