"""What goes to the trash by id, what is about to go, and marks of what is gone: exactly what was meant."""

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.engine.root.delete import discard_exactly, undelete_exactly
from model_checkpoint.engine.root.intents import IntendedDeletion, Intent, close_intents, open_intent, open_intents
from model_checkpoint.errors import StorageFailure, WrongReference
from model_checkpoint.storage.contract.sidecars import seal
from model_checkpoint.storage.locate import open_store
from model_checkpoint.storage.memory import InMemoryStore


@pytest.fixture
def root(tmp_path):
    return f"memory://{tmp_path.name}"


def saved(root, step=1, **options):
    return mc.save(root, {"w": np.full(2, step)}, step=step, **options)


def test_only_the_checkpoint_of_that_id_is_discarded(root):
    first, store = saved(root), open_store(root)

    assert not discard_exactly(store, "step-00000007", first.id)
    assert not discard_exactly(store, first.prefix, "another")
    assert not discard_exactly(store, first.prefix, "")
    assert store.names() == [first.prefix]
    assert discard_exactly(store, first.prefix, first.id)
    assert (store.names(), [gone.name for gone in store.trash()]) == ([], [first.prefix])


def test_a_checkpoint_that_cannot_be_read_goes_by_no_id(root):
    info, store = saved(root), open_store(root)
    mending = store.mend(info.prefix, "attempt-1")
    mending.abort()
    store._bucket.published[info.prefix]["manifest.json"] = b"no manifest"

    assert not discard_exactly(store, info.prefix, info.id)
    assert discard_exactly(store, info.prefix, "")


class Replacing(InMemoryStore):
    """Another process replaces, or deletes, the checkpoint between look and deed."""

    deed = None

    def discard(self, name):
        self.deed()
        return super().discard(name)


def test_what_is_not_meant_is_not_even_moved(root):
    first, store, moved = saved(root), Replacing(root), []
    store.deed = lambda: moved.append("moved")

    for name, id in ((first.prefix, "another"), (first.prefix, ""), ("step-00000007", first.id)):
        assert not discard_exactly(store, name, id)

    assert moved == []


def test_what_took_its_place_meanwhile_is_brought_back(root):
    first, store = saved(root), Replacing(root)
    store.deed = lambda: saved(root, overwrite=True)

    assert not discard_exactly(store, first.prefix, first.id)
    (present,) = mc.list_checkpoints(root)
    assert present.id != first.id
    assert [gone.name for gone in store.trash()] == [first.prefix]  # what was replaced


def test_what_another_process_deleted_meanwhile_is_not_deleted_again(root):
    first, store = saved(root), Replacing(root)
    store.deed = lambda: mc.delete(root, step=1)

    assert not discard_exactly(store, first.prefix, first.id)
    assert len(store.trash()) == 1


# --- bringing back ---------------------------------------------------------------------------------------------------


class Refusing(InMemoryStore):
    """Memory that says that nothing can be brought back, or says so after another process has done it."""

    quicker = False

    def bring_back(self, token):
        if self.quicker:
            super().bring_back(token)
        raise StorageFailure("no answer", "here", code=5)


def test_only_the_checkpoint_of_that_id_is_brought_back(root):
    first, store = saved(root), open_store(root)
    mc.delete(root, step=1)

    for name, id in ((first.prefix, "another"), ("step-00000007", first.id)):
        with pytest.raises(WrongReference, match=f"checkpoint {id} is not in the trash"):
            undelete_exactly(store, name, id)
    assert store.names() == []

    undelete_exactly(store, first.prefix, first.id)
    undelete_exactly(store, first.prefix, first.id)  # it is back already
    assert [info.id for info in mc.list_checkpoints(root)] == [first.id]


def test_what_another_process_brought_back_is_back(root):
    first, store = saved(root), Refusing(root)
    mc.delete(root, step=1)

    with pytest.raises(StorageFailure, match="no answer"):
        undelete_exactly(store, first.prefix, first.id)

    store.quicker = True
    undelete_exactly(store, first.prefix, first.id)
    assert [info.id for info in mc.list_checkpoints(root)] == [first.id]


# --- intents ---------------------------------------------------------------------------------------------------------


def test_an_intent_is_there_until_it_is_closed(root):
    store = open_store(root)
    intent = Intent(plan="p1", deletions=(IntendedDeletion("a", "1"), IntendedDeletion("b", "")))
    other = Intent(plan="p2", deletions=())

    assert open_intent(store, intent)
    assert open_intent(store, other)
    assert open_intents(store) == [intent, other]
    close_intents(store, [intent])
    assert open_intents(store) == [other]


def test_an_intent_is_read_as_it_has_always_been_written(root):
    store = open_store(root)
    store.write_sidecar("prune.p1", seal(b'{"plan":"p1","doomed":[["a","1"],["b",""]]}'))

    assert open_intents(store) == [Intent(plan="p1", deletions=(IntendedDeletion("a", "1"), IntendedDeletion("b", "")))]


@pytest.mark.parametrize(
    "damage", [lambda whole: b"", lambda whole: whole[:-1], lambda whole: whole.replace(b"p1", b"p2")]
)
def test_what_is_no_intent_is_left_alone(root, damage):
    store, intent = open_store(root), Intent(plan="p1", deletions=(IntendedDeletion("a", "1"),))
    open_intent(store, intent)
    ((key, whole),) = store.read_sidecars()
    store.write_sidecar(key, damage(whole))

    assert open_intents(store) == []
    assert len(list(store.read_sidecars())) == 1


def test_an_intent_under_the_key_of_another_is_left_alone(root):
    store, intent = open_store(root), Intent(plan="p1", deletions=(IntendedDeletion("a", "1"),))
    open_intent(store, intent)
    ((_, whole),) = store.read_sidecars()
    store.write_sidecar("prune.p2", whole)
    store.write_sidecar("not-prune.p1", whole)

    assert open_intents(store) == [intent]


def test_marks_of_what_is_gone_for_good_are_removed_and_no_others(root):
    first, second = saved(root), saved(root, 2)
    mc.pin(root, step=1)
    mc.tag(root, "good", step=2)
    mc.delete(root, step=1)

    mc.collect_garbage(root)
    assert len(list(open_store(root).read_sidecars())) == 2  # it can be brought back
    open_store(root)._bucket.trash.clear()
    mc.collect_garbage(root)

    assert [second.id in key for key, _ in open_store(root).read_sidecars()] == [True]
    assert first.id != second.id


def test_marks_stay_while_one_manifest_cannot_be_read(root):
    first = saved(root)
    saved(root, 2)
    mc.pin(root, step=1)
    store = open_store(root)
    store._bucket.published[first.prefix]["manifest.json"] = b"no manifest"

    mc.collect_garbage(root)

    assert len(list(store.read_sidecars())) == 1
