"""Which name a checkpoint gets if nobody says one, and what is said of one that is not there."""

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

import model_checkpoint as mc
from model_checkpoint.distributed import DistributedCheckpoint, LocalCoordinator
from model_checkpoint.distributed.moving.prefixes import default_prefix, require_there
from model_checkpoint.errors import CorruptedCheckpoint, UnsupportedType, WrongReference
from model_checkpoint.storage import open_store


def test_the_name_is_the_moment_in_utc_and_numbered_from_two(tmp_path):
    store, first = open_store(tmp_path), "checkpoint_20260102_020405"
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=1)))

    for name in (first, f"{first}_2", f"{first}_3"):
        assert default_prefix(store, moment) == name
        mc.save(store, {"a": 1}, name=name)

    before = datetime.now(UTC)
    made = datetime.strptime(default_prefix(store), "checkpoint_%Y%m%d_%H%M%S").replace(tzinfo=UTC)
    assert before - timedelta(seconds=1) <= made <= datetime.now(UTC)


def test_a_save_that_fails_is_told_by_the_name_it_was_given(tmp_path):
    class Odd:
        def get_state_dict(self):
            return [1]

        def load_state_dict(self, state):
            pass

    with pytest.raises(UnsupportedType, match="gives list") as told:
        DistributedCheckpoint(LocalCoordinator(), tmp_path).save_model_only(Odd())

    assert re.fullmatch(rf"{tmp_path}/checkpoints/checkpoint_\d{{8}}_\d{{6}}", told.value.checkpoint_path)


@pytest.mark.parametrize(("count", "known"), [(0, "there are 0: none"), (8, "h. Choose"), (9, "h, .... Choose")])
def test_who_asks_for_what_is_not_there_is_told_what_is(tmp_path, count, known):
    store = open_store(tmp_path)
    for name in "abcdefghi"[:count]:
        mc.save(store, {"a": 1}, name=name)

    with pytest.raises(WrongReference, match=rf"/checkpoints/x: no such checkpoint; there are {count}: ") as told:
        require_there(store, "x")
    assert known in str(told.value)
    if count:
        require_there(store, "a")


def test_what_cannot_be_read_is_told_as_that(tmp_path):
    info = mc.save(tmp_path, {"a": 1}, name="first")
    with open(f"{info.path}/manifest.json", "wb") as file:
        file.write(b"nonsense")

    with pytest.raises(CorruptedCheckpoint, match="first"):
        require_there(open_store(tmp_path), "first")
