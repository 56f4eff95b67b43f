"""When the disk will be full, and what a set of keepers will hold."""

from datetime import timedelta

import pytest
from tests.checkpoint.retention.retention_ground import fill, saved

import model_checkpoint as mc
from model_checkpoint.checkpoint.retention.disk_forecast import foresee
from model_checkpoint.checkpoint.retention.retention_plan import plan_retention
from model_checkpoint.errors import CheckpointNotFound

HOUR = 3600.0


def hourly(count, *, nbytes=100, shared=0):
    base = (("base", shared),) if shared else ()
    return [saved(10 * n, minutes=60 * n, files=(*base, (f"own-{n}", nbytes))) for n in range(count)]


def test_without_keepers_every_save_stays():
    found = foresee(hourly(5), free=1000)

    assert (found.saves_left, found.seconds_left) == (10, 10 * HOUR)
    assert found.pace.seconds == HOUR
    assert "full after 10 more saves, in 10:00:00" in found.summary()


def test_a_shared_copy_counts_once():
    found = foresee(hourly(5, nbytes=10, shared=1000), free=1000)

    assert found.held_bytes == 1050
    assert found.saves_left == 100


def test_a_first_save_tells_its_own_size():
    found = foresee(hourly(1), free=1000)

    assert (found.saves_left, found.seconds_left) == (10, None)
    assert foresee([], free=1000).saves_left is None


def test_where_the_medium_does_not_tell_nobody_can():
    found = foresee(hourly(3), free=None)

    assert found.saves_left is None
    assert "does not tell" in found.summary()


@pytest.mark.parametrize(
    ("keep", "checkpoints"),
    [
        ([mc.last(3)], 3),
        ([mc.last(3), mc.best("loss", 2)], 5),
        ([mc.younger_than("1d")], 24),
        ([mc.ladder({100: 4})], 5),
        ([mc.budget(1000)], 10),
        ([mc.pinned()], 1),
    ],
)
def test_what_keepers_hold_in_the_end(keep, checkpoints):
    there = [saved(10 * n, minutes=60 * n, files=((f"own-{n}", 100),), metrics={"loss": 1}) for n in range(4)]

    found = foresee(there, free=10**6, keep=keep, grace=0)

    assert (found.steady_checkpoints, found.steady_bytes) == (checkpoints, 100 * checkpoints)
    assert (found.saves_left, found.steady_trash_bytes) == (None, 0)
    assert f"holds {checkpoints} checkpoints" in found.summary()


def test_a_keeper_that_grows_for_ever_says_so_and_when_the_disk_is_full():
    found = foresee(hourly(2), free=2000, keep=[mc.every(100)], grace=0)

    assert (found.steady_checkpoints, found.steady_bytes) == (None, None)
    assert "grows for ever" in found.summary()
    assert 150 <= found.saves_left <= 220  # one of ten stays


def test_what_waits_in_the_trash_counts_too():
    roomy = foresee(hourly(3), free=10_000, keep=[mc.last(3)])
    tight = foresee(hourly(3), free=1_000, keep=[mc.last(3)])

    assert roomy.steady_trash_bytes == 2400  # each save drops one
    assert roomy.saves_left is None
    assert 5 <= tight.saves_left <= 11
    assert foresee(hourly(3), free=1_000, keep=[mc.last(3)], grace=HOUR).saves_left is None


def test_a_grace_of_more_saves_than_are_looked_at_counts_whole():
    there = [saved(n, minutes=n / 60, files=((f"own-{n}", 100),)) for n in range(4)]  # one a second

    assert foresee(there, free=10**9, keep=[mc.last(4)]).steady_trash_bytes == 24 * 3600 * 100


def test_the_forecast_is_what_pruning_after_each_save_comes_to():
    keep, there = [mc.last(4), mc.ladder({50: 3}), mc.younger_than("6h")], hourly(40)
    held = []
    for one in there:
        held = [d.candidate for d in plan_retention([*held, one], keep, now=one.committed_at).kept]

    assert foresee(held, free=10**6, keep=keep).steady_checkpoints == len(held)


def test_of_a_real_root(tmp_path):
    fill(tmp_path / "runs", range(5))
    found = mc.forecast(tmp_path / "runs", keep=[mc.last(2)], grace=0)

    assert found.checkpoints == 5
    assert found.steady_checkpoints == 2
    assert found.saves_left is None
    assert found.free_bytes > 0
    assert found.pace.nbytes == pytest.approx(found.held_bytes / 5, rel=0.2)
    with pytest.raises(CheckpointNotFound, match=r"no such checkpoint root"):
        mc.forecast(tmp_path / "elsewhere")


def test_commit_times_that_run_backwards_do_no_harm():
    found = foresee([saved(1, minutes=9), saved(2, minutes=9), saved(3, minutes=1)], free=100)

    assert found.pace.seconds == timedelta(minutes=4).total_seconds()
