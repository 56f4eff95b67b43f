"""The ceiling of staging memory is what the machine and its control groups leave, of either version, however deep."""

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.engine.background.save_async import finish_saves, save_async
from model_checkpoint.engine.background.staging_pool import POOL
from model_checkpoint.engine.background.staging_queue import staging_limit
from model_checkpoint.performance.available_memory import available_bytes

MIB = 1 << 20


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with 1 GiB free and a process in the group /a/b, whose limits the test writes down."""
    (tmp_path / "meminfo").write_text(f"MemTotal: 9999999 kB\nMemAvailable: {1 << 20} kB\n")
    (tmp_path / "membership").write_text("5:cpu,memory:/a/b\n1:name=systemd:/x\n0::/a/b\n")
    room = "model_checkpoint.performance.available_memory."
    monkeypatch.setattr(f"{room}_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(f"{room}_MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(f"{room}_CGROUP", tmp_path / "cgroup")
    return tmp_path / "cgroup"


def limit_group(folder, most, used, *, cache=0, version=2):
    folder.mkdir(parents=True, exist_ok=True)
    names = (
        ("memory.max", "memory.current", "")
        if version == 2
        else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
    )
    (folder / names[0]).write_text(f"{most}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 7\n{names[2]}inactive_file {cache}\n{names[2]}active_file 0\n")


def test_without_groups_the_machine_says_what_is_free(machine):
    assert available_bytes() == 1 << 30


@pytest.mark.parametrize("where", ["", "a", "a/b"])
def test_the_tightest_group_above_the_process_counts(machine, where):
    limit_group(machine / "a" / "b", "max", 1)
    limit_group(machine / where, 100 * MIB, 40 * MIB, cache=10 * MIB)

    assert available_bytes() == 70 * MIB


@pytest.mark.parametrize("where", ["memory", "memory/a/b"])
def test_groups_of_the_first_version_count_too(machine, where):
    limit_group(machine / where, 100 * MIB, 40 * MIB, cache=10 * MIB, version=1)

    assert available_bytes() == 70 * MIB


def test_a_first_version_group_without_a_limit_leaves_it_to_the_machine(machine):
    limit_group(machine / "memory", (1 << 63) - 4096, 40 * MIB, version=1)

    assert available_bytes() == 1 << 30


def test_a_group_that_is_over_its_limit_has_no_room(machine):
    limit_group(machine, 100 * MIB, 140 * MIB)

    assert available_bytes() == 0


@pytest.mark.parametrize("room", [0, 8 * MIB, 32 * MIB])
def test_a_save_in_a_small_group_goes_in_waves_and_keeps_half_of_the_room_free(machine, tmp_path, room):
    finish_saves()
    limit_group(machine / "a" / "b", 100 * MIB, 100 * MIB - room)
    state, POOL.peak = {"w": np.random.default_rng(0).standard_normal(32 * MIB // 8)}, 0
    assert staging_limit(None) == room // 2

    save_async(tmp_path / "root", state, step=1).result()

    assert 0 < POOL.peak <= max(room // 2, 5 * MIB)  # one chunk is staged whatever the room, or nothing would move
    limit_group(machine / "a" / "b", "max", 1)
    assert np.array_equal(mc.load(tmp_path / "root")["w"], state["w"])
    finish_saves()


def test_where_nobody_can_tell_what_is_free_a_save_is_staged_as_it_comes(machine, tmp_path):
    finish_saves()
    (tmp_path / "meminfo").unlink()
    state = {"w": np.random.default_rng(0).standard_normal(32 * MIB // 8)}
    assert available_bytes() is staging_limit(None) is None

    save_async(tmp_path / "root", state, step=1).result()

    assert np.array_equal(mc.load(tmp_path / "root")["w"], state["w"])
    finish_saves()
