"""Layouts of files: older ones are migrated and resumed, newer and foreign ones refused by name."""

import json
import shutil

import pytest
from tests.precision import precision_golden
from tests.precision.precision_golden import first_layout
from tests.precision.precision_models import assert_same, bits, build, train, wrap

import model_checkpoint as mc
from model_checkpoint.errors import CorruptedCheckpoint, IncompatibleVersion
from model_checkpoint.precision import MixedPrecisionCheckpointManager as Manager
from model_checkpoint.precision import from_tree, to_tree
from model_checkpoint.precision.checkpoints.tree_codec import LAYOUT, MIGRATIONS


@pytest.mark.parametrize("fallen", [False, True])
def test_a_checkpoint_of_layout_1_is_migrated_and_resumes(run, fallen):
    model, optimizer = run
    if fallen:
        optimizer.fallback_to_fp32()
    stored = from_tree(first_layout(optimizer))
    other = build(seed=2)
    fresh = wrap(other)

    findings = Manager.restore_checkpoint(fresh, stored)
    for one, its in ((optimizer, model), (fresh, other)):
        train(its, one, range(8, 30))

    assert stored.version == 1
    assert fresh.has_fallback is fallen
    assert "seen" in {finding.name for finding in findings}
    first, second = bits(optimizer), bits(fresh)
    assert_same(first["masters"], second["masters"])
    assert_same(first["state"], second["state"])


def test_a_layout_1_checkpoint_without_base_state_says_so(run):
    stored = from_tree({**first_layout(run[1]), "base_optimizer_state": None})

    assert [f.name for f in Manager.inspect_checkpoint(stored)] == ["base_optimizer_state"]


def test_the_version_of_the_record_and_the_layout_of_the_file_are_numbered_apart(checkpoint):
    tree = to_tree(checkpoint)

    assert (tree["version"], tree["metadata"]["version"], tree["layout"]) == (1, "1.0", LAYOUT)
    assert set(MIGRATIONS) == set(range(1, LAYOUT))


@pytest.mark.parametrize("field", ["layout", "version"])
def test_a_newer_layout_and_a_newer_version_are_refused_by_name(checkpoint, field):
    newest = {"layout": LAYOUT, "version": 1}[field]

    with pytest.raises(IncompatibleVersion, match=rf"{field} is 9, this library reads up to {newest}. Update"):
        from_tree({**to_tree(checkpoint), field: 9})


@pytest.mark.parametrize("field", ["layout", "version"])
@pytest.mark.parametrize("number", [0, "two", None])
def test_a_layout_or_version_that_is_no_number_is_refused(checkpoint, field, number):
    with pytest.raises(CorruptedCheckpoint, match=rf"{field} is {number!r}, expected 1 to"):
        from_tree({**to_tree(checkpoint), field: number})


def test_an_old_checkpoint_that_lost_a_part_is_refused_by_name(run):
    tree = {**first_layout(run[1]), "metadata": {}}

    with pytest.raises(CorruptedCheckpoint, match="cannot be read: KeyError: 'precision'"):
        from_tree(tree)


@pytest.mark.parametrize("tree", [{"model": 1}, {"version": 2}, [1, 2], {"format": "other", "version": 2}])
def test_something_else_is_refused_as_foreign(tree):
    with pytest.raises(CorruptedCheckpoint, match="this is something else"):
        from_tree(tree)


def test_a_lost_part_is_refused_by_name(checkpoint):
    tree = to_tree(checkpoint)
    del tree["scaler"]

    with pytest.raises(CorruptedCheckpoint, match=r"cannot be read: KeyError: 'scaler'"):
        from_tree(tree)


@pytest.mark.parametrize(("field", "number", "newest"), [("layout", LAYOUT + 1, LAYOUT), ("version", 2, 1)])
def test_a_newer_file_is_refused_by_name_with_the_cure(run, tmp_path, field, number, newest):
    newer = {**to_tree(Manager.create_checkpoint(run[1])), field: number}
    mc.save(tmp_path / "new", newer, name="mixed-precision")

    message = rf"new: .*{field} is {number}, this library reads up to {newest}\. Update model-checkpoint"
    with pytest.raises(IncompatibleVersion, match=message):
        Manager.load_checkpoint(tmp_path / "new")


@pytest.fixture
def golden(request, tmp_path):
    shutil.copytree(precision_golden.GOLDEN / request.param, tmp_path / "golden")
    return tmp_path / "golden"


def assert_golden(model, optimizer):
    assert precision_golden.expect(optimizer) == json.loads((precision_golden.GOLDEN / "expected.json").read_text())
    precision_golden.train_a_little(model, optimizer)
    assert optimizer.step_count == 12


@pytest.mark.parametrize("golden", [f"layout{layout}" for layout in range(1, LAYOUT + 1)], indirect=True)
def test_golden_checkpoints_of_every_layout_are_read_as_version_1_and_resumed(golden):
    model, optimizer = precision_golden.make_run()

    stored = Manager.load_checkpoint(golden)
    Manager.restore_checkpoint(optimizer, stored)

    assert (stored.version, stored.metadata["version"]) == (1, "1.0")
    assert_golden(model, optimizer)


@pytest.mark.parametrize("golden", [f"layout{layout}-part" for layout in range(2, LAYOUT + 1)], indirect=True)
def test_golden_parts_of_a_larger_state_are_read_and_resumed(golden):
    model, optimizer = precision_golden.make_run()

    mc.load(golden, into={"optimizer": optimizer})

    assert_golden(model, optimizer)
