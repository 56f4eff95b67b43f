"""Choices and selections that cannot be meant are refused by name, with an error of ours, before anything changes."""

import msgspec
import numpy as np
import pytest
import torch
from tests.ground.live_modules import Counting

import model_checkpoint as mc
from model_checkpoint import errors
from model_checkpoint.engine.root.listing import Choices, ListedCheckpoint, load_manifest
from model_checkpoint.manifest import decode_summary
from model_checkpoint.storage.locate import open_store


@pytest.fixture
def root(tmp_path):
    mc.save(tmp_path, {"w": np.arange(3.0), "lr": 0.5, "epoch": 1}, step=1, metrics={"loss": 0.5})
    return tmp_path


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"step": "1"}, r"^step must be a whole number of 0 or more, got '1'"),
        ({"step": True}, r"^step must be a whole number of 0 or more, got True"),
        ({"step": -1}, r"^step must be a whole number of 0 or more, got -1"),
        ({"id": 3}, r"^id must be a text, got 3"),
        ({"best": 3}, r"^best must be a text, got 3"),
        ({"name": 3}, r"^name must be a text, got 3"),
        ({"step": 1, "best": "loss"}, r"^choose a checkpoint by one of"),
        ({"parts": 3}, r"^parts must be a text or a list of texts, got 3"),
        ({"parts": ["w", 3]}, r"^parts must be a text or a list of texts, got \['w', 3\]"),
        ({"rename": 3}, r"^rename must map texts to texts, or be a function"),
        ({"rename": {"w": None}}, r"^rename must map texts to texts"),
        ({"rename": lambda name: None}, r"^w: rename= must return a text, got None"),
        ({"types": int}, r"^types must be a list of classes, got <class 'int'>"),
    ],
)
def test_a_choice_or_selection_of_the_wrong_type_is_refused_by_name(root, options, told):
    with pytest.raises(ValueError, match=told) as caught:
        mc.load(root, **options)
    assert isinstance(caught.value, errors.CheckpointException)


def test_any_collection_of_texts_selects(root):
    assert sorted(mc.load(root, parts={"lr": 1, "w": 2}.keys())) == ["lr", "w"]
    assert list(mc.load(root, parts={"epoch"})) == ["epoch"]
    assert mc.load(root, step=np.int64(1), parts="lr") == {"lr": 0.5}


@pytest.mark.parametrize(
    "call",
    [
        lambda root: mc.save(root, {}, step=1.5),
        lambda root: mc.save(root, {}, step=2, metrics={"loss": "low"}),
        lambda root: mc.save(root, {}, step=2, metrics={1: 0.5}),
        lambda root: mc.save(root, {}, step=2, metrics=[1]),
        lambda root: mc.save(root, {}, step=2, format="single_file", incremental=True),
        lambda root: mc.delete(root),
        lambda root: mc.delete(root, step="1"),
        lambda root: mc.undelete(root, step=1, name="a"),
        lambda root: mc.undelete(root, name=1),
        lambda root: mc.load(""),
        lambda root: mc.load(3),
        lambda root: mc.save_async(root, {}, step=2, busy="never"),
    ],
)
def test_what_is_refused_is_refused_with_an_error_of_ours(root, call):
    with pytest.raises(errors.CheckpointException, match=r".") as caught:
        call(root)

    assert isinstance(caught.value, (ValueError, TypeError))
    assert [info.step for info in mc.list_checkpoints(root)] == [1]


@pytest.mark.parametrize("framework", ["numpy", "jax"])
@pytest.mark.parametrize("hooked", [False, True])
def test_a_framework_that_torch_objects_do_not_take_is_refused_before_anything_changes(tmp_path, framework, hooked):
    pytest.importorskip(framework)
    model = torch.nn.Linear(2, 2)
    adam = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    adam.step()
    mc.save(tmp_path, {"model": model, "adam": adam, "w": torch.ones(3)}, step=1)
    fresh = torch.nn.Linear(2, 2)
    if hooked:
        fresh.register_load_state_dict_post_hook(lambda *_: None)
    live = {"model": fresh, "adam": torch.optim.Adam(fresh.parameters()), "w": torch.zeros(3)}

    with pytest.raises(errors.StructureMismatch, match=r"(?s)adam: framework= would give it 6 arrays") as caught:
        mc.load(tmp_path, into=live, framework=framework)

    assert ("model: framework= would give it 2" in str(caught.value)) is hooked
    assert not live["w"].any()
    mc.load(tmp_path, into=live, framework="torch")
    assert torch.equal(fresh.weight, model.weight)


def test_diff_tells_the_plain_values_that_differ(root):
    mc.save(root, {"w": np.arange(3.0), "lr": 0.25, "epoch": True, "notes": ("a", None)}, step=2)

    found = mc.diff(f"{root}@1", f"{root}@2")

    assert [(change.name, change.before, change.after) for change in found.values] == [
        ("lr", "0.5", "0.25"),
        ("epoch", "1", "True"),
        ("notes.0", None, "'a'"),
        ("notes.1", None, "None"),
    ]
    assert (found.unchanged, found.same) == (1, False)
    assert mc.diff(f"{root}@2", f"{root}@2").same


def test_diff_does_not_take_equal_nan_for_a_change(tmp_path):
    for step in (1, 2):
        mc.save(tmp_path, {"loss": float("nan"), "best": float("inf"), "at": {1, 2}}, step=step)

    assert mc.diff(f"{tmp_path}@1", f"{tmp_path}@2").same


def test_a_module_that_misses_its_extra_state_is_told_unless_not_strict(tmp_path):
    saved, live = torch.nn.Linear(2, 2), Counting(2, 2)
    mc.save(tmp_path, {"m": saved}, step=1)

    with pytest.raises(errors.StructureMismatch, match=r"missing: m\._extra_state"):
        mc.load(tmp_path, into={"m": live})
    assert not torch.equal(live.weight, saved.weight)

    with pytest.warns(mc.CheckpointWarning, match=r"left as it was: m\._extra_state"):
        mc.load(tmp_path, into={"m": live}, strict=False)
    assert torch.equal(live.weight, saved.weight)


def test_extra_state_the_live_module_has_no_place_for_is_unexpected_unless_not_strict(tmp_path):
    saved, live = Counting(2, 2), torch.nn.Linear(2, 2)
    mc.save(tmp_path, {"m": saved, "bare": {"note": 1}}, step=1)

    with pytest.raises(
        errors.StructureMismatch, match=r"unexpected: m\._extra_state\.calls\n  unexpected: bare\.note$"
    ):
        mc.load(tmp_path, into={"m": live})
    assert not torch.equal(live.weight, saved.weight)

    with pytest.warns(mc.CheckpointWarning, match=r"not loaded: m\._extra_state\.calls"):
        mc.load(tmp_path, into={"m": live}, strict=False)
    assert torch.equal(live.weight, saved.weight)
    mc.save(tmp_path, torch.nn.Identity(), step=2)
    mc.load(tmp_path, into=torch.nn.Identity())


@pytest.mark.parametrize("place", ["disk", "memory://test-selecting-undelete"])
def test_what_was_deleted_stays_in_the_trash_while_another_has_its_name(tmp_path, place):
    root = tmp_path if place == "disk" else place
    mc.save(root, {"a": 1}, step=1)
    mc.delete(root, step=1)
    mc.save(root, {"a": 2}, step=1)

    with pytest.raises(errors.StepExists, match=r"step-00000001: .*stays in the trash; nothing was changed\. Give the"):
        mc.undelete(root, step=1)

    assert mc.load(root) == {"a": 2}


def test_a_root_where_nothing_can_be_made_is_told_as_such():
    with pytest.raises(
        errors.StorageFailure, match=r"/proc/x: could not make the root .*takes nothing there, as /proc"
    ):
        mc.save("/proc/x", {"a": 1}, step=1)


def test_parts_that_neither_side_of_a_difference_has_are_refused(tmp_path):
    for step in (1, 2):
        mc.save(tmp_path, {"model": {"w": np.full(2, step)}, "epoch": step}, step=step)

    with pytest.raises(errors.StructureMismatch, match=r"neither it nor .* has anything in 'modle'"):
        mc.diff(f"{tmp_path}@1", f"{tmp_path}@2", parts="modle")
    assert [change.name for change in mc.diff(f"{tmp_path}@1", f"{tmp_path}@2", parts="model").changed] == ["model.w"]


def test_what_has_no_metadata_or_cannot_be_read_may_be_called_the_best(root):
    (name,) = open_store(root).names()
    summary = decode_summary(open_store(root).read_manifest(name), "here")

    assert ListedCheckpoint(name, msgspec.structs.replace(summary, metadata=None)).contends
    assert ListedCheckpoint(name, None).contends


def test_the_name_of_a_step_may_be_given_without_the_step(root):
    assert mc.save(root, {"epoch": 2}, name="step-00000005").prefix == "step-00000005"

    with pytest.raises(errors.OptionInvalid, match="is the folder of another step than step=7"):
        mc.save(root, {"epoch": 2}, name="step-00000006", step=7)


def test_nothing_of_what_was_replaced_is_left_in_its_place(tmp_path):
    root = f"memory://{tmp_path.name}"
    for value in (1, 2):
        info = mc.save(root, {"w": np.full(3, value)}, step=1, overwrite=True)

    files = open_store(root).files(info.prefix)
    assert files.keys() == {"manifest.json", *load_manifest(open_store(root), info.prefix).file_names}


def test_choices_are_read_as_far_as_asked_for_and_to_the_end_from_behind():
    read = []

    def choices():
        for number in range(5):
            read.append(number)
            yield ListedCheckpoint(f"step-{number:08d}", None)

    some = Choices(choices())

    assert (some[1].name, read) == ("step-00000001", [0, 1])
    assert (len(some[:3]), read) == (3, [0, 1, 2])
    assert (some[-1].name, read) == ("step-00000004", [0, 1, 2, 3, 4])
    assert (len(some), len(some[3:])) == (5, 2)
