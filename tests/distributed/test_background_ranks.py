"""Many ranks save in the background: they agree at once, and write while training goes on."""

import numpy as np
import pytest
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint.errors import BackgroundSaveFailed, SaveCancelled, SaveSkipped
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls

WEIGHTS = np.arange(3 << 20, dtype=np.uint8)


class BrokenDisk(Syscalls):
    """A disk that takes no byte."""

    def pwrite(self, fd, data, offset):
        raise OSError(5, "Input/output error")


def test_the_state_may_change_as_soon_as_the_call_returns(tmp_path):
    def save(coordinator):
        weights = WEIGHTS.copy()
        job = mc.save_async(tmp_path, {"w": weights, "own": coordinator.rank}, step=1, coordinator=coordinator)
        weights[:] = 0
        return job.result()

    infos = all_well(on_ranks(3, save))

    assert len({info.id for info in infos}) == 1
    assert infos[0].world_size == 3
    loaded = all_well(on_ranks(3, lambda c: mc.load(tmp_path, coordinator=c)))
    assert [one["own"] for one in loaded] == [0, 1, 2]
    assert all(np.array_equal(one["w"], WEIGHTS) for one in loaded)
    assert mc.verify(tmp_path)[0].ok


@pytest.mark.parametrize("busy", ["wait", "queue"])
def test_saves_in_a_row_are_all_made(tmp_path, busy):
    def save(coordinator):
        jobs = [
            mc.save_async(tmp_path, {"w": WEIGHTS + step}, step=step, coordinator=coordinator, busy=busy)
            for step in range(4)
        ]
        return [job.result().step for job in jobs]

    assert all_well(on_ranks(2, save)) == [[0, 1, 2, 3]] * 2
    assert all(np.array_equal(mc.load(tmp_path, step=step)["w"], WEIGHTS + step) for step in range(4))


def test_whether_a_save_is_skipped_rank_0_decides_for_all(tmp_path):
    def save(coordinator):
        jobs = [
            mc.save_async(tmp_path, {"w": WEIGHTS + step}, step=step, coordinator=coordinator, busy="skip")
            for step in range(6)
        ]
        return [isinstance(job.exception(), SaveSkipped) for job in jobs]

    first, *others = all_well(on_ranks(3, save))

    assert others == [first] * 2
    assert not first[0]
    saved = {info.step for info in mc.list_checkpoints(tmp_path)}
    assert saved == {step for step in range(6) if not first[step]}


def test_a_save_that_one_rank_cancels_is_cancelled_on_all(tmp_path):
    def save(coordinator):
        job = mc.save_async(tmp_path, {"w": WEIGHTS}, step=1, coordinator=coordinator, memory_limit=5 << 20)
        late = coordinator.rank == 1 and not job.cancel()
        return late, job.exception()

    outcomes = all_well(on_ranks(3, save))

    if outcomes[1][0]:  # it was being committed by then
        assert [one for _, one in outcomes] == [None] * 3
    else:
        assert [type(one) for _, one in outcomes] == [SaveCancelled] * 3
        assert not list((tmp_path / "checkpoints").iterdir())


def test_a_disk_that_fails_one_rank_in_the_background_fails_all_and_the_next_save_says_so(tmp_path):
    def save(coordinator):
        broken = {"calls": BrokenDisk()} if coordinator.rank == 1 else {}
        mc.save_async(LocalStore(tmp_path, **broken), {"w": WEIGHTS}, step=1, coordinator=coordinator)
        try:
            mc.save(tmp_path, {"w": WEIGHTS}, step=2, coordinator=coordinator)
        except BackgroundSaveFailed as error:
            return str(error)
        return ""

    told = all_well(on_ranks(2, save))

    assert any("rank 1 of 2: " in text and "Input/output error" in text for text in told)
    assert not list((tmp_path / "checkpoints").iterdir())
    mc.save(tmp_path, {"w": WEIGHTS}, step=3) if all(told) else mc.load(tmp_path, step=2)


def test_files_of_whole_tensors_are_made_in_the_background_too(tmp_path):
    def save(coordinator):
        options = {"format": mc.CheckpointFormat.CONSOLIDATED, "coordinator": coordinator}
        return mc.save_async(tmp_path, {"model": {"w": WEIGHTS}}, step=1, **options).result().format

    assert set(all_well(on_ranks(2, save))) == {mc.CheckpointFormat.CONSOLIDATED}
    assert np.array_equal(mc.load(tmp_path)["model"]["w"], WEIGHTS)
