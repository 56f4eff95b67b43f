"""What looking at checkpoints tells: every figure and every name in it is exact."""

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.engine.reading.chunks.healthy_copies import HealthyCopies
from model_checkpoint.engine.reading.figures.movement import rank
from model_checkpoint.engine.reading.peek import peek
from model_checkpoint.engine.reading.verify import verify_named
from model_checkpoint.engine.root.protection import has_parity
from model_checkpoint.engine.root.run_position import run_position
from model_checkpoint.errors import OptionInvalid, StructureMismatch, WrongReference
from model_checkpoint.manifest import decode
from model_checkpoint.storage.locate import open_store
from model_checkpoint.storage.memory import InMemoryStore

STATE = {"model": {"w": np.arange(6.0), "gone": np.ones(2)}, "lr": 0.5, "old": 1, "same": "x"}
LATER = {"model": {"w": np.arange(6.0) * 3, "new": np.ones(2)}, "lr": 0.25, "young": 2, "same": "x"}


@pytest.fixture
def root(tmp_path):
    return f"memory://{tmp_path.name}"


def manifest_of(root, step):
    return decode(open_store(root).read_manifest(f"step-{step:08d}"), "here")


# --- diff ------------------------------------------------------------------------------------------------------------


def test_a_diff_tells_what_came_went_changed_and_stayed(root):
    mc.save(root, {**STATE, "stays": np.zeros(1)}, step=1)
    mc.save(root, {**LATER, "stays": np.zeros(1)}, step=2)

    found = mc.diff(f"{root}@1", f"{root}@2")

    assert (found.a.step, found.b.step, found.unchanged, found.same) == (1, 2, 1, False)
    assert (found.added, found.removed) == (["model.new"], ["model.gone"])
    (w,) = found.changed
    assert (w.name, w.before, w.after, w.max_change) == ("model.w", "float64 [6]", "float64 [6]", 10.0)
    assert (w.mean_change, w.relative, w.spoiled) == (5.0, 2.0, 0)
    assert [(one.name, one.before, one.after) for one in found.values] == [
        ("lr", "0.5", "0.25"),
        ("old", "1", None),
        ("young", None, "2"),
    ]


@pytest.mark.parametrize("lone", ["added", "removed", "changed", "values"])
def test_one_difference_of_any_kind_is_a_difference(root, lone):
    less, more = {"a": np.ones(1)}, {"a": np.ones(1), "b": np.ones(1)}
    pairs = {"added": (less, more), "removed": (more, less), "changed": (less, {"a": np.zeros(1)})}
    before, after = pairs.get(lone, ({**less, "v": 1}, {**less, "v": True}))  # equal, but of another type
    mc.save(root, before, step=1)
    mc.save(root, after, step=2)

    found = mc.diff(f"{root}@1", f"{root}@2")

    assert not found.same
    assert [kind for kind in ("added", "removed", "changed", "values") if getattr(found, kind)] == [lone]


def test_a_diff_of_parts_compares_only_those_and_refuses_what_neither_has(root):
    mc.save(root, STATE, step=1)
    mc.save(root, LATER, step=2)

    found = mc.diff(f"{root}@1", f"{root}@2", parts="lr")
    heard = []
    mc.diff(f"{root}@1", f"{root}@2", parts="model", progress=heard.append)

    assert (found.changed, found.added, found.removed, [one.name for one in found.values]) == ([], [], [], ["lr"])
    assert [(event.operation, event.done, event.total) for event in heard] == [("diff", 96, 96)]
    assert mc.diff(f"{root}@1", f"{root}@2", parts="young").values[0].after == "2"
    with pytest.raises(StructureMismatch, match=r"step-00000001: neither it nor .*step-00000002 has anything in 'odd'"):
        mc.diff(f"{root}@1", f"{root}@2", parts="odd")


def test_a_tensor_of_another_shape_has_no_distance_and_comes_behind_those_that_did_not_move(root):
    mc.save(root, {"a": np.ones(2), "b": np.zeros(2, np.int8), "nan": np.ones(2)}, step=1)
    mc.save(root, {"a": np.ones(3), "b": np.zeros(2, np.int16), "nan": np.array([1, np.nan])}, step=2)

    whole = mc.diff(f"{root}@1", f"{root}@2")
    found = whole.changed

    assert whole._repr_html_().count("not finite any more") == whole._repr_html_().count(", 1 not finite any more") == 1
    assert [(one.name, one.max_change, one.spoiled) for one in found[1:]] == [("b", 0.0, 0), ("a", None, 0)]
    assert (found[0].name, found[0].spoiled) == ("nan", 1)
    assert rank(0, 0.0) < rank(0, None) == rank(0, float("nan"))
    assert rank(2, None) < rank(1, None) < rank(0, 9.0)


# --- verify ----------------------------------------------------------------------------------------------------------


def test_a_verification_counts_the_bytes_it_has_read(tmp_path):
    mc.save(tmp_path, STATE, step=1)
    heard = []

    (health,) = mc.verify(tmp_path, progress=heard.append)

    size = sum(path.stat().st_size for path in tmp_path.glob("checkpoints/*/*.safetensors"))
    assert (health.ok, health.bytes_read, health.parity) == (True, size, [])
    assert (heard[-1].operation, heard[-1].done, heard[-1].total) == ("verify", size, size)


def test_a_copy_with_two_names_is_read_once_and_its_header_for_each_name(tmp_path):
    state = {"model": {"w": np.arange(4096.0)}}
    for step in (1, 2):
        mc.save(tmp_path, state, step=step, incremental=True)
    (path,) = tmp_path.glob("checkpoints/step-00000002/*.safetensors")
    assert path.stat().st_nlink == 2
    header = path.stat().st_size - 4096 * 8

    newest, oldest = mc.verify(tmp_path)
    (alone,) = mc.verify(tmp_path, step=1)

    assert (newest.bytes_read, oldest.bytes_read, alone.bytes_read) == (header + 32768, header, header + 32768)


class Fleeting(InMemoryStore):
    """Memory from which another process deletes a checkpoint as soon as one of its files is opened."""

    def open(self, name, file):
        if self.has(name):
            self.discard(name)
        return super().open(name, file)


def test_a_checkpoint_deleted_while_it_is_verified_is_no_damage_but_gone(root):
    for step in (1, 2):
        mc.save(root, STATE, step=step)

    with pytest.raises(WrongReference, match=r"step-00000001: was deleted while it was being verified"):
        verify_named(Fleeting(root), "step-00000001", HealthyCopies())
    with pytest.raises(WrongReference, match=r"step-00000002: was deleted while it was being verified"):
        mc.verify(Fleeting(root), step=2)
    assert mc.verify(Fleeting(root)) == []


# --- one leaf --------------------------------------------------------------------------------------------------------


def test_a_leaf_that_is_not_there_is_refused_with_the_nearest_name(root):
    mc.save(root, STATE, step=1)

    assert (peek(root, "model.w", 2), peek(root, "lr")) == (2.0, "0.5")
    with pytest.raises(WrongReference, match=r"step-00000001: no leaf 'model.v' in it. Did you mean 'model.w'\?"):
        peek(root, "model.v")
    with pytest.raises(WrongReference, match=r"no tensor 'lr' in it. Did you mean 'lr'\?"):
        peek(root, "lr", 0)
    with pytest.raises(WrongReference, match=r"no leaf 'zzzzzz' in it. `mckpt show --tensors` lists its tensors"):
        peek(root, "zzzzzz")


# --- describe --------------------------------------------------------------------------------------------------------


def test_a_step_that_the_checkpoint_itself_has_is_not_lacking(root):
    mc.save(root, {"model": {"w": np.ones(2)}}, step=1)
    mc.save(root, {"model": {"w": np.ones(2)}}, name="odd")

    with_step, without = mc.describe(f"{root}@1").lacking, mc.describe(mc.list_checkpoints(root)[-1]).lacking

    assert set(without) - set(with_step) == {"step"}
    assert set(with_step) < set(without)


def test_where_a_run_was_is_told_with_what_keeps_a_resume_from_being_exact(root):
    place = {"step": 7, "epoch": 2, "batch": 5}
    mc.save(root, {"run": {"place": place, "reasons": []}}, step=7)
    mc.save(root, {"run": {"place": place, "reasons": ["a loader without state"]}}, step=8)
    mc.save(root, {"run": {"place": {"step": 7, "epoch": 2}}}, step=9)

    exact, vague = run_position(f"{root}@7"), run_position(f"{root}@8")

    assert (exact.step, exact.epoch, exact.batch, exact.exact, exact.reasons) == (7, 2, 5, True, ())
    assert (vague.exact, vague.reasons) == (False, ("a loader without state",))
    assert run_position(f"{root}@9") is None


def test_a_checkpoint_that_was_deleted_meanwhile_has_no_parity(root):
    mc.save(root, {"w": np.ones(5)}, step=1, parity="xor")
    mc.finish_saves()
    store, manifest = open_store(root), manifest_of(root, 1)
    there = has_parity(store, manifest)
    mc.delete(root, step=1)

    assert (there, has_parity(store, manifest)) == (True, False)


# --- what is asked for -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["a" * 7, "a" * 65, "a b c d e", "a_b_c_d_e", 12345678])
def test_an_id_that_is_none_is_refused_before_anything_is_done(root, id):
    with pytest.raises(OptionInvalid, match=r"id must be a text of 8 to 64 letters, digits and '-'.*Nothing was done"):
        mc.save(root, {"a": 1}, step=1, id=id)

    assert mc.save(root, {"a": 1}, step=1, id="A-234567").id == "A-234567"
    assert mc.save(root, {"a": 1}, step=2, id="a" * 64).id == "a" * 64


def test_a_metric_that_is_nowhere_a_number_has_no_best(root):
    mc.save(root, {"a": 1}, step=1, metrics={"loss": float("nan")})

    with pytest.raises(WrongReference, match="no checkpoint has a number for loss; NaN is never best"):
        mc.load(root, best="loss")
    with pytest.raises(WrongReference, match=r"no checkpoint has a metric 'los'; known: loss. Did you mean 'loss'\?"):
        mc.load(root, best="los")
    with pytest.raises(WrongReference, match=r"no checkpoint has a metric 'zz'; known: loss. Save with metrics="):
        mc.load(root, best="zz")
