"""Several loaders under one run: what a batch is, where an epoch ends, and what is refused."""

import pytest

import model_checkpoint as mc
from model_checkpoint.errors import OptionInvalid, StructureMismatch


def batches(root, data, *, stop=None, epochs=2):
    """What comes, until the body of step ``stop`` ends the program as an exception would."""
    seen = []
    for batch in (run := mc.Run(root, data=data, epochs=epochs, every=2, state={"a": 1})):
        if run.step == stop:
            break
        seen.append(batch)
    mc.finish_saves(root)
    return seen, run


def test_the_first_loader_decides_what_an_epoch_is_and_the_others_go_on_or_begin_anew(tmp_path):
    seen, run = batches(tmp_path, {"a": [1, 2, 3], "short": [10, 20], "long": [5, 6, 7, 8]})

    assert [tuple(batch.values()) for batch in seen] == [
        (1, 10, 5), (2, 20, 6), (3, 10, 7), (1, 20, 8), (2, 10, 5), (3, 20, 6),
    ]  # fmt: skip
    assert (run.step, run.epoch) == (6, 2)
    assert list(seen[0]) == ["a", "short", "long"]


@pytest.mark.parametrize("stop", [3, 5])
def test_each_loader_goes_on_at_its_own_place(tmp_path, stop):
    data = {"a": [1, 2, 3], "short": [10, 20], "long": [5, 6, 7, 8]}
    whole, _ = batches(tmp_path / "whole", data)

    batches(tmp_path / "cut", data, stop=stop)
    rest, run = batches(tmp_path / "cut", data)

    assert run.resumed_from == stop - 1
    assert rest == whole[stop - 1 :]
    assert run.exact is True


def test_a_resume_by_hand_at_the_end_of_an_epoch_repeats_only_the_work_there(tmp_path):
    def go():
        ends, seen = [], []
        run = mc.Run(tmp_path, data={"a": [1, 2], "b": [5, 6, 7]}, epochs=2, every=None, state={"a": 1})
        for one in run.epochs():
            seen += [tuple(batch.values()) for batch in one]
            ends.append(run.epoch)
            if run.resumed_from is None and run.epoch == 0:
                run.save().result()
                return ends, seen
        return ends, seen

    assert go() == ([0], [(1, 5), (2, 6)])
    assert go() == ([0, 1], [(1, 7), (2, 5)])


def test_other_loaders_than_were_saved_are_refused(tmp_path):
    batches(tmp_path, {"a": [1, 2, 3], "b": [1]}, stop=2)

    with pytest.raises(StructureMismatch, match=r"saved as the loaders \['a', 'b'\], now there are \['a', 'c'\]"):
        batches(tmp_path, {"a": [1, 2, 3], "c": [1]})


def test_several_loaders_where_one_was_saved_are_refused(tmp_path):
    batches(tmp_path, [1, 2, 3], stop=2)

    with pytest.raises(StructureMismatch, match="saved with one loader"):
        batches(tmp_path, {"a": [1, 2, 3], "c": [1]})


def test_a_loader_without_a_batch_is_refused(tmp_path):
    with pytest.raises(OptionInvalid, match="the loader 'b' gives no batch"):
        batches(tmp_path, {"a": [1, 2, 3], "b": []})
    with pytest.raises(OptionInvalid, match="several loaders need a name each"):
        mc.Run(tmp_path, data={}, state={"a": 1})
    with pytest.raises(OptionInvalid, match="cannot be begun anew"):
        mc.Run(tmp_path, data={"a": iter([1])}, state={"a": 1})
