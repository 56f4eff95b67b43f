"""Every choice of a manager, of a save and of a load does what its name says."""

import base64
import hashlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
import xxhash
from tests.ground.stored.stored_files import flip

import model_checkpoint as mc
from model_checkpoint.backend import BaseStorageBackend
from model_checkpoint.errors import CorruptedCheckpoint, OptionInvalid
from model_checkpoint.hooks import HookEvent
from model_checkpoint.manifest import decode, encode

STATE = {"w": np.ones(4)}


def listen(manager, *events):
    """What the hooks of a manager hear, by name of the event."""
    heard = []
    manager.register_hook("hear", lambda context: heard.append(context.event.name), events=list(events))
    return heard


# --- of a manager ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("caching", [True, False])
def test_enable_caching_is_whether_a_row_is_believed_unasked(make, caching):
    manager = make(enable_caching=caching, cache_ttl=3600.0)
    id = manager.save_checkpoint(STATE, step=1, notes="before")

    manager.connection.update_checkpoint(id, notes="after")

    assert manager.get_checkpoint(id).notes == ("before" if caching else "after")
    assert manager.get_performance_statistics()["caches"]["total"].items == int(caching)


def test_cache_size_is_how_many_rows_are_kept(make):
    manager = make(cache_size=2)

    for step in range(5):
        manager.save_checkpoint(STATE, step=step)

    found = manager.get_performance_statistics()["caches"]["checkpoints.metadata"]
    assert (found.items, found.evicted) == (2, 3)


@pytest.mark.parametrize("hooks", [True, False])
def test_enable_hooks_is_whether_hooks_are_called_and_may_say_no(make, hooks):
    manager = make(enable_hooks=hooks)
    manager.register_hook("guard", lambda context: False, events=[HookEvent.BEFORE_CHECKPOINT_SAVE])

    if hooks:
        with pytest.raises(RuntimeError, match="hook 'guard' said no"):
            manager.save_checkpoint(STATE, step=1)
    else:
        manager.save_checkpoint(STATE, step=1)

    assert len(manager.list_checkpoints()) == int(not hooks)


@pytest.mark.parametrize(
    ("of_manager", "of_save", "looked"),
    [({}, {}, True), ({"enable_integrity_checks": False}, {}, False), ({}, {"compute_checksum": False}, False)],
)
def test_what_was_saved_is_looked_at_unless_that_is_not_wanted(make, of_manager, of_save, looked):
    manager = make(**of_manager)
    heard = listen(manager, HookEvent.BEFORE_INTEGRITY_CHECK, HookEvent.AFTER_INTEGRITY_CHECK)

    id = manager.save_checkpoint(STATE, step=1, **of_save)

    assert heard == ["BEFORE_INTEGRITY_CHECK", "AFTER_INTEGRITY_CHECK"] * looked
    assert len(manager.get_checkpoint(id).checksum) == (64 if looked else 0)
    assert manager.load_checkpoint(id)["step"] == 1  # its bytes have digests all the same


def test_mirror_is_a_second_root_with_the_same_checkpoints(make, tmp_path):
    manager = make(mirror=f"{tmp_path}/mirror")
    id = manager.save_checkpoint(STATE, step=1)
    manager.finish_saves()

    (info,) = mc.list_checkpoints(f"{tmp_path}/mirror")

    assert info.id == id
    assert mc.load(f"{tmp_path}/mirror")["model"]["w"].tolist() == [1.0] * 4


@pytest.mark.parametrize("incremental", [True, False])
def test_incremental_repeats_what_did_not_change(make, incremental):
    manager = make(incremental=incremental)
    frozen = np.arange(200_000.0)

    ids = [manager.save_checkpoint({"w": frozen}, step=step, save_rng=False) for step in range(2)]

    second = manager.get_checkpoint(ids[1])
    assert (second.unique_bytes < second.file_size / 10) is incremental
    manager.delete_checkpoint(ids[0])
    assert np.array_equal(manager.load_checkpoint(ids[1])["model_state_dict"]["w"], frozen)


def test_save_frequency_is_which_epochs_are_scheduled(make):
    manager = make(save_frequency=3)

    ids = [manager.save_checkpoint(STATE, epoch=epoch) for epoch in range(4)]

    assert [manager.is_due(epoch) for epoch in range(4)] == [True, False, False, True]
    kinds = [manager.get_checkpoint(id).checkpoint_type for id in ids]
    assert kinds == ["periodic", "manual", "manual", "periodic"]


@pytest.mark.parametrize(
    ("option", "wrong"), [("save_frequency", 0), ("incremental", "yes"), ("enable_hooks", 1), ("enable_caching", None)]
)
def test_a_choice_that_is_none_is_refused(make, option, wrong):
    with pytest.raises(OptionInvalid, match=repr(wrong)):
        make(**{option: wrong})


# --- of a save -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left_out", ["optimizer", "scheduler", ""])
def test_a_part_that_is_not_wanted_is_not_saved(make, left_out):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    manager = make()

    choice = {f"save_{left_out}": False} if left_out else {}
    id = manager.save_checkpoint(model, optimizer, scheduler, step=1, save_rng=False, **choice)

    expected = {"model", "optimizer", "scheduler"} - {left_out}
    assert {*manager.get_checkpoint(id).parts} == expected
    found = manager.load_checkpoint(id)
    assert {name for name in ("model", "optimizer", "scheduler") if f"{name}_state_dict" in found} == expected


@pytest.mark.parametrize("update_best", [True, False])
def test_update_best_is_whether_it_may_be_the_best(manager, update_best):
    heard = listen(manager, HookEvent.ON_BEST_MODEL_UPDATE)

    id = manager.save_checkpoint(STATE, step=1, loss=0.5, update_best=update_best)

    assert manager.get_checkpoint(id).is_best_loss is update_best
    assert heard == ["ON_BEST_MODEL_UPDATE"] * update_best


# --- of a load -------------------------------------------------------------------------------------------------------


class RawBackend(BaseStorageBackend):
    """Keeps one array as it is."""

    def save_checkpoint(self, data, path):
        Path(path).write_bytes(np.asarray(data["model_state_dict"]["w"]).tobytes())

    def load_checkpoint(self, path, device=None):
        return {"model_state_dict": {"w": np.frombuffer(Path(path).read_bytes())}}


def forge(row):
    """Change a number in a file and every xxh3 that speaks of it, so that SHA-256 alone can tell."""
    folder = Path(row.file_path)
    manifest = decode((folder / "manifest.json").read_bytes(), row.file_path)
    (record,) = (*manifest.files, *manifest.extras)
    data = bytearray((folder / record.name).read_bytes())
    at = bytes(data).index(np.ones(4).tobytes())
    data[at : at + 8] = np.full(1, 2.0).tobytes()
    (folder / record.name).write_bytes(bytes(data))

    def fresh(start, stop):
        return xxhash.xxh3_128(bytes(data[start:stop]))

    spans = zip((0, *record.ends), record.ends, strict=False)
    sums = base64.b64encode(b"".join(fresh(*span).digest() for span in spans)).decode()
    forged = msgspec.structs.replace(record, xxh3=sums, subchunks=())
    own = {"files": (forged,)} if manifest.files else {"extras": (forged,)}
    entries = tuple(
        msgspec.structs.replace(one, digest=fresh(one.start, one.stop).hexdigest()) for one in manifest.entries
    )
    (folder / "manifest.json").write_bytes(encode(msgspec.structs.replace(manifest, entries=entries, **own)))


@pytest.mark.parametrize("backend", ["native", "pytorch", RawBackend])
def test_verify_integrity_compares_sha256_and_without_it_a_faster_digest(make, backend):
    """Whoever can change bytes can make any sum but a cryptographic one fit."""
    manager = make(storage_backend=backend, enable_caching=False)
    state = {"w": torch.ones(4, dtype=torch.float64) if backend == "pytorch" else np.ones(4)}
    id = manager.save_checkpoint(state, step=1, save_rng=False)
    healthy = manager.load_checkpoint(id)
    forge(manager.get_checkpoint(id))

    with pytest.raises(CorruptedCheckpoint, match=r"(?i)sha-?256|checksum|digest"):
        manager.load_checkpoint(id)
    fast = manager.load_checkpoint(id, verify_integrity=False)

    assert np.asarray(fast["model_state_dict"]["w"]).tolist() == [2.0, 1.0, 1.0, 1.0]
    assert (healthy["_load_metadata"]["verified"], fast["_load_metadata"]["verified"]) == ("sha256", "xxh3")


@pytest.mark.parametrize("backend", ["native", "pytorch"])
def test_bytes_that_changed_by_accident_are_refused_without_sha256_too(make, backend):
    manager = make(storage_backend=backend)
    id = manager.save_checkpoint({"w": torch.ones(4)}, step=1, save_rng=False)
    (path,) = (one for one in Path(manager.get_checkpoint(id).file_path).iterdir() if one.suffix != ".json")
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    flip(path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() != before

    with pytest.raises(CorruptedCheckpoint, match=r"digest|checksum|xxh3"):
        manager.load_checkpoint(id, verify_integrity=False)
