"""One checkpoint is meant: a reference says which, wherever one is taken, and a wrong one is no first start."""

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint import errors
from model_checkpoint.engine.root.refs import parse_ref


@pytest.fixture
def root(tmp_path):
    for step in (1, 2, 3):
        mc.save(tmp_path / "a", {"step": step, "w": np.full(3, step)}, step=step, metrics={"loss": (step - 2) ** 2})
    return tmp_path / "a"


def references(root):
    """Step 2, said in every way."""
    info = next(info for info in mc.list_checkpoints(root) if info.step == 2)
    folder = root / "checkpoints" / "step-00000002"
    return [
        f"{root}@2",
        f"{root}@best:loss",
        f"{root}@id:{info.id[:12]}",
        f"{root}@step-00000002",
        folder,
        f"{folder}/",
        info,
    ]


def test_every_verb_takes_every_reference(root):
    for ref in references(root):
        assert mc.load(ref)["step"] == 2
        assert mc.load_slice(ref, "w", 0) == 2
        assert mc.describe(ref).info.step == 2
        assert mc.diff(ref, ref).same
        assert [health.info.step for health in mc.verify(ref)] == [2]
        assert [info.step for info in mc.repair(ref).examined] == [2]
        assert (mc.pin(ref).pinned, mc.tag(ref, "good").tags, mc.note(ref, "hm").note) == (True, ("good",), "hm")
        assert (mc.unpin(ref).pinned, mc.untag(ref, "good").tags) == (False, ())
        assert mc.delete(ref).step == 2
        mc.undelete(root)


def test_what_was_deleted_comes_back_by_reference(root):
    for ref in (f"{root}@2", f"{root}@step-00000002", root / "checkpoints/step-00000002"):
        mc.delete(root, step=2)
        mc.delete(root, step=1)
        assert mc.undelete(ref).step == 2
        assert mc.undelete(mc.CheckpointInfo(**{**fields(root), "prefix": "step-00000001"})).step == 1

    with pytest.raises(ValueError, match="searched by step or name only"):
        mc.undelete(f"{root}@best:loss")


def fields(root):
    names = ("version", "timestamp", "world_size", "size_bytes", "format", "step", "id")
    return {**dict.fromkeys(names), "path": f"{root}/checkpoints/step-00000001"}


def test_a_wrong_reference_is_no_first_start(root, tmp_path):
    """A `try` around the first start must not swallow it and train from nothing."""
    wrong = [f"{root}@80", f"{root}@best:los", f"{root}@id:zz", f"{root}@typo", f"{root}/checkpoints/step-00000009"]
    wrong += [f"{tmp_path}/none@80", f"{tmp_path}/none@name", f"{root}@", f"{root}@best:", f"{root}@id:"]
    verbs = [
        mc.load, mc.describe, mc.verify, mc.delete, mc.repair, mc.pin, mc.unpin, lambda ref: mc.load_slice(ref, "w", 0),
        lambda ref: mc.tag(ref, "good"), lambda ref: mc.untag(ref, "good"), lambda ref: mc.note(ref, "hm"),
        lambda ref: mc.diff(ref, root), lambda ref: mc.diff(root, ref),
    ]  # fmt: skip
    searched = [ref for ref in wrong if "best:" not in str(ref) and "id:" not in str(ref)]  # as the trash is
    for verb in (*verbs, mc.undelete):
        for ref in searched if verb is mc.undelete else wrong:
            with pytest.raises(mc.WrongReference, match=r"no |not a reference|nothing ") as caught:
                verb(ref)
            assert not isinstance(caught.value, FileNotFoundError)
            assert isinstance(caught.value, (LookupError, mc.CheckpointException))
    for choice in ({"step": 80}, {"name": "x"}, {"id": "zz"}, {"best": "los"}):
        with pytest.raises(mc.WrongReference, match="no "):
            mc.load(root, **choice)
    with pytest.raises(mc.WrongReference, match="no step 80"):
        mc.delete(root, step=80)


def test_what_lies_within_a_root_is_no_first_start(root):
    folder = root / "checkpoints"
    for verb in (mc.load, mc.describe, mc.pin, lambda ref: mc.load_slice(ref, "w", 0)):
        for ref in (folder, f"{folder}/", folder / "step-00000009/manifest.json"):
            with pytest.raises(mc.WrongReference, match=f"no root, but a part of one. Give {root}"):
                verb(ref)
        with pytest.raises(errors.StorageFailure, match="Not a directory"):
            verb(folder / "step-00000001/manifest.json")


def test_what_is_no_root_at_all_is_refused_by_type():
    for ref in ("memory://", "s3://", "runs/\0a", "runs/\0a@80"):
        with pytest.raises(ValueError, match=r"not safe|not a URL|zero byte") as caught:
            mc.load(ref)
        assert isinstance(caught.value, mc.CheckpointException)
    mc.save("memory://long-step", {"a": 1}, step=1)
    with pytest.raises(mc.WrongReference, match="no checkpoint named '999"):
        mc.load("memory://long-step@" + "9" * 5000)


def test_where_a_root_is_meant_one_checkpoint_of_it_is_a_wrong_reference(root):
    """It is none of the roots that are not there, and what lies in it is no list of checkpoints."""
    named = (f"{root}@77", f"{root}@2", f"{root}@best:loss", f"{root}@latest", root / "checkpoints/step-00000002")
    for verb in (mc.list_checkpoints, mc.collect_garbage, mc.prune, mc.forecast):
        for ref in named:
            with pytest.raises(mc.WrongReference, match=f"{ref}: names one checkpoint, give its root: {root}"):
                verb(ref)


def test_a_root_may_lie_in_a_folder_called_checkpoints_and_have_a_mark_in_its_name(tmp_path):
    for place in (tmp_path / "checkpoints/one", tmp_path / "checkpoints/one@home"):
        mc.save(f"{place}/", {"a": 1}, step=1)

        assert [info.step for info in mc.list_checkpoints(place)] == [1]


def test_no_root_or_an_empty_one_is_the_first_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    mc.save("checkpoints/old", {"a": 1}, step=1)

    for ref in (
        "none",
        "none@latest",
        "none@best:loss",
        "empty",
        "checkpoints/new",
        tmp_path / "checkpoints/new",
        "x@y/",
    ):
        with pytest.raises(FileNotFoundError, match=r"no such checkpoint root|no committed checkpoint"):
            mc.load(ref)


def test_a_slash_at_the_end_makes_a_folder_of_a_name_with_a_mark(tmp_path):
    mc.save(f"{tmp_path}/me@home/", {"a": 1}, step=1)

    assert (
        mc.load(f"{tmp_path}/me@home/")
        == mc.load(f"{tmp_path}/me@home")
        == mc.load(f"{tmp_path}/me@home@1")
        == {"a": 1}
    )
    assert parse_ref(f"{tmp_path}/you@home/").root == f"{tmp_path}/you@home"


def test_a_reference_and_a_choice_together_are_refused(root):
    for ref in references(root):
        with pytest.raises(errors.OptionInvalid, match="names a checkpoint already; leave step= out"):
            mc.load(ref, step=2)


def test_what_a_save_returns_can_be_kept_in_sets(root):
    infos = mc.list_checkpoints(root)

    assert len({*infos, *mc.list_checkpoints(root)}) == 3
