"""A save through the manager: the data flow as drawn, what it leaves, and what is undone when something refuses."""

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

import model_checkpoint as mc
from model_checkpoint import EnhancedCheckpointManager
from model_checkpoint.checkpoint import NoExperiment
from model_checkpoint.database.errors import RowRefused
from model_checkpoint.errors import BackgroundSaveFailed, ChunkMismatch, OptionInvalid, Truncated
from model_checkpoint.hooks import BaseHook, HookEvent, HookVetoed
from model_checkpoint.manifest import decode_summary
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.testing import FaultyCalls

STATE = {"w": np.arange(6.0)}


class Listener(BaseHook):
    def __init__(self):
        self.heard = []

    def execute(self, context):
        self.heard.append(context.event)
        return True


def test_a_save_lets_go_of_the_state_at_once(manager):
    """Not when the collector comes by next: a copy of a large model must not stay beside the next one."""
    weights = np.arange(6.0)
    alive = weakref.ref(weights)
    manager.save_checkpoint({"w": weights}, step=1)  # what is done once is done
    gc.collect()
    gc.disable()
    try:
        manager.save_checkpoint({"w": weights}, step=2)
        del weights

        assert alive() is None
    finally:
        gc.enable()


def test_a_save_goes_the_way_that_is_drawn(manager, monkeypatch):
    """Pre-save hooks, backend, post-save hooks, integrity, cache, row, retention."""
    steps, listener = [], Listener()
    manager.hook_manager.register_hook(listener)
    services = manager._services
    for name, owner, method in [
        ("backend", LocalStore, "stage"),
        ("cache", type(services.caches.checkpoints), "set_metadata"),
        ("row", type(services.catalog), "record"),
    ]:
        real = getattr(owner, method)

        def told(*args, _real=real, _name=name, **options):
            steps.append(_name)
            return _real(*args, **options)

        monkeypatch.setattr(owner, method, told)
    monkeypatch.setattr(
        "model_checkpoint.checkpoint.saving.save_steps.retire", lambda services, run: steps.append("retention")
    )
    listener.execute = lambda context: steps.append(context.event.value) or True
    manager.hook_manager.clear_hooks()
    manager.hook_manager.register_hook(listener)

    manager.save_checkpoint(STATE, step=1)

    assert steps == [
        "before_checkpoint_save",
        "backend",
        "after_checkpoint_save",
        "before_integrity_check",
        "after_integrity_check",
        "cache",
        "row",
        "retention",
    ]


def test_every_event_of_a_checkpoint_s_life_is_fired_in_its_turn(make):
    listener, manager = Listener(), make(max_checkpoints=1, save_best=False)
    manager.register_hook(listener)
    saving = ["BEFORE_CHECKPOINT_SAVE", "AFTER_CHECKPOINT_SAVE", "BEFORE_INTEGRITY_CHECK", "AFTER_INTEGRITY_CHECK"]

    def heard():
        names, listener.heard = [event.name for event in listener.heard], []
        return names

    manager.save_checkpoint(STATE, step=1, val_loss=0.5)
    assert heard() == [*saving, "ON_BEST_MODEL_UPDATE", "BEFORE_RETENTION_POLICY", "AFTER_RETENTION_POLICY"]
    id = manager.save_checkpoint(STATE, step=2, val_loss=0.7)
    gone = ["BEFORE_CHECKPOINT_DELETE", "AFTER_CHECKPOINT_DELETE"]
    assert heard() == [*saving, "BEFORE_RETENTION_POLICY", *gone, "AFTER_RETENTION_POLICY"]
    manager.load_checkpoint(id)
    assert heard() == ["BEFORE_CHECKPOINT_LOAD", "AFTER_CHECKPOINT_LOAD"]
    (data,) = Path(manager.get_checkpoint(id).file_path).glob("*.safetensors")
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")
    with pytest.raises(ChunkMismatch, match="does not have the recorded digest"):
        manager.load_checkpoint(id)
    assert heard() == ["BEFORE_CHECKPOINT_LOAD", "ON_INTEGRITY_FAILURE", "ON_ERROR"]


@pytest.mark.usefixtures("database_url")
def test_what_is_saved_is_recorded_whole(manager, run):
    id = manager.save_checkpoint(
        torch.nn.Linear(2, 3),
        epoch=5,
        step=40,
        loss=0.5,
        val_loss=0.6,
        metrics={"accuracy": 0.7},
        config={"lr": 0.1},
        notes="warm",
        tags=["t"],
        metadata={"who": "me"},
    )

    row = manager.get_checkpoint(id)
    info = mc.list_checkpoints(manager.root)[0]
    assert (row.id, row.experiment_id, row.epoch, row.step) == (id, run.experiment_id, 5, 40)
    assert (row.loss, row.val_loss, dict(row.metrics)) == (0.5, 0.6, {"accuracy": 0.7})
    assert (row.model_name, row.notes, list(row.tags), row.checkpoint_type) == ("Linear", "warm", ["t"], "periodic")
    assert (row.metadata["config"], row.metadata["who"]) == ({"lr": 0.1}, "me")
    assert (row.backend, list(row.parts), row.file_size) == ("native", ["model", "rng"], info.size_bytes)
    assert (row.is_best_loss, row.is_best_val_loss, row.is_best_metric) == (True, True, True)
    assert (info.id, info.prefix, info.step) == (id, row.name, 40)
    assert len(row.checksum) == 64
    assert mc.load(manager.root, id=id)["model"]["weight"].shape == (3, 2)


def test_the_checksum_stands_for_every_byte(manager):
    """Two states that differ in one bit have two checksums; one that is saved twice has one for its data."""
    rows = [
        manager.get_checkpoint(manager.save_checkpoint({"w": np.full(3, value)}, step=step, save_rng=False))
        for step, value in enumerate((1.0, np.nextafter(1.0, 2.0)))
    ]

    assert rows[0].checksum != rows[1].checksum
    summary = decode_summary(LocalStore(manager.root).read_manifest(rows[0].name), "x")
    assert [record.digest for record in summary.files] != []


def test_each_saved_byte_is_hashed_once_and_not_read_back(make, tmp_path, monkeypatch):
    from model_checkpoint.engine.writing import slabs

    hashed, real = [], slabs.digest_chunks

    def counting(chunks, rooms=None):
        hashed.extend(len(chunk) for chunk in chunks)
        return real(chunks, rooms)

    monkeypatch.setattr(slabs, "digest_chunks", counting)
    calls = FaultyCalls()
    manager = make(folder=LocalStore(tmp_path / "root", calls=calls))

    id = manager.save_checkpoint({"w": np.zeros(3 << 20, np.uint8)}, step=1)

    assert sum(hashed) == manager.get_checkpoint(id).file_size
    read = {call.path.rpartition(".")[2] for call in calls.trace if call.name in ("preadv", "mmap")}
    assert read == {"json"}  # the manifest alone: what is not read back is not hashed again


@pytest.mark.parametrize("backend", ["native", "pytorch", "safetensors"])
def test_every_part_comes_back_through_every_backend(make, backend):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    scheduler.step()
    scaler = torch.amp.GradScaler("cpu")
    manager = make(storage_backend=backend)
    parts = {"ema": {"w": torch.ones(2)}}

    id = manager.save_checkpoint(model, optimizer, scheduler, 3, scaler=scaler, parts=parts, config={"a": 1})
    found = manager.load_checkpoint(id)

    assert torch.equal(found["model_state_dict"]["weight"], model.weight)
    assert found["optimizer_state_dict"]["state"][0]["step"] == 1
    assert found["scheduler_state_dict"]["last_epoch"] == 1
    assert found["scaler_state_dict"].keys() == scaler.state_dict().keys()
    assert torch.equal(found["ema"]["w"], torch.ones(2))
    assert (found["epoch"], found["config"]) == (3, {"a": 1})
    assert found["_checkpoint_metadata"]["id"] == id
    assert found["_load_metadata"]["verified"] == "sha256"
    without = manager.load_checkpoint(id, load_optimizer=False, load_scheduler=False)
    assert {"optimizer_state_dict", "scheduler_state_dict"}.isdisjoint(without)
    assert manager.get_checkpoint(id).backend == backend


def test_a_torch_checkpoint_is_a_pt_file_that_torch_loads_safely(make):
    """The default loader of torch reads what was saved, and nothing in it can run code."""
    manager = make(storage_backend="pytorch")
    row = manager.get_checkpoint(manager.save_checkpoint(torch.nn.Linear(2, 2), step=1))

    found = torch.load(f"{row.file_path}/checkpoint.pt")

    assert sorted(found) == ["model_state_dict", "rng_state_dict"]


def test_compression_really_makes_it_smaller_and_a_backend_without_it_refuses(make, tmp_path):
    state = {"w": np.zeros(1 << 20)}
    plain, packed = make(), make(folder=f"{tmp_path}/packed", enable_compression=True)

    sizes = [one.get_checkpoint(one.save_checkpoint(state, step=1)).file_size for one in (plain, packed)]

    assert sizes[1] < sizes[0] / 10
    for option in ({"enable_compression": True}, {"incremental": True}, {"parity": "xor"}, {"mirror": "memory://m"}):
        with pytest.raises(OptionInvalid, match=f"{next(iter(option))} is of the native backend; pytorch does not"):
            make(storage_backend="pytorch", **option)


def test_saves_of_eight_threads_all_succeed(manager):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda n: manager.save_checkpoint(STATE, step=n, val_loss=float(n)), range(64)))

    rows = manager.list_checkpoints()
    assert sorted(row.id for row in rows) == sorted(ids)
    assert [row.step for row in rows if row.is_best_val_loss] == [0]


# --- what refuses, and what is undone --------------------------------------------------------------------------------


def test_a_hook_that_says_no_prevents_the_save(manager):
    manager.register_hook("guard", lambda context: False, events=[HookEvent.BEFORE_CHECKPOINT_SAVE])

    with pytest.raises(HookVetoed, match="guard"):
        manager.save_checkpoint(STATE, step=1)
    with pytest.raises(RuntimeError, match="guard"):
        manager.save_checkpoint(STATE, step=1)
    assert LocalStore(manager.root).names() == []
    assert manager.list_checkpoints() == []


def test_a_hook_may_change_what_is_recorded(manager):
    def measure(context):
        return {"context_updates": {"metrics": {"accuracy": 0.9}, "notes": "by a hook"}}

    manager.register_hook("measure", measure, events=[HookEvent.BEFORE_CHECKPOINT_SAVE])

    row = manager.get_checkpoint(manager.save_checkpoint(STATE, step=1))

    assert (dict(row.metrics), row.notes) == ({"accuracy": 0.9}, "by a hook")


def test_without_a_run_nothing_is_saved(tmp_path, make):
    manager = make(tracker=None)

    with pytest.raises(NoExperiment, match="which run is meant"):
        manager.save_checkpoint(STATE, step=1)
    with pytest.raises(ValueError, match="run 'nobody' is not in"):
        manager.save_checkpoint(STATE, step=1, experiment_id="nobody")
    assert LocalStore(manager.root).names() == []


@pytest.mark.usefixtures("database_url")
def test_a_refused_row_takes_the_files_back(manager, monkeypatch):
    def refuse(*args, **options):
        raise RowRefused("no")

    monkeypatch.setattr(type(manager.connection), "record_saved", refuse)

    with pytest.raises(RowRefused, match="no"):
        manager.save_checkpoint(STATE, step=1)
    assert LocalStore(manager.root).names() == []
    assert manager.list_checkpoints() == []
    assert [(one.action, one.outcome) for one in manager.audit().items] == [("save", "failed")]


@pytest.mark.usefixtures("database_url")
def test_a_checkpoint_that_is_not_what_was_saved_is_taken_back_with_its_row(manager, monkeypatch):
    listener = Listener()
    manager.register_hook(listener)
    real = LocalStore.files
    monkeypatch.setattr(LocalStore, "files", lambda self, name: {file: 1 for file in real(self, name)})

    with pytest.raises(Truncated, match="right after the save"):
        manager.save_checkpoint(STATE, step=1)
    assert LocalStore(manager.root).names() == []
    assert manager.list_checkpoints() == []
    assert listener.heard[-2:] == [HookEvent.ON_INTEGRITY_FAILURE, HookEvent.ON_ERROR]


def test_a_failing_backend_is_told_and_leaves_nothing(make):
    class Broken:
        def save(self, data, path):
            Path(path).write_bytes(b"half")
            raise OSError("disk on fire")

        def load(self, path):
            return {}

    manager, listener = make(storage_backend=Broken()), Listener()
    manager.register_hook(listener)

    with pytest.raises(OSError, match="disk on fire"):
        manager.save_checkpoint(STATE, step=1)
    assert listener.heard[-1] is HookEvent.ON_ERROR
    assert LocalStore(manager.root).names() == []


def test_parts_have_names_of_their_own(manager):
    for name in ("model", "x_state_dict", "_x", 3):
        with pytest.raises(OptionInvalid, match="names are texts"):
            manager.save_checkpoint(STATE, parts={name: 1})
    with pytest.raises(OptionInvalid, match="nothing to save"):
        manager.save_checkpoint()


# --- in the background -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["native", "safetensors"])
def test_a_background_save_keeps_the_state_of_the_call(make, backend):
    manager, state = make(storage_backend=backend), {"w": np.ones(1000)}

    saves = []
    for step in range(4):
        saves.append(manager.save_checkpoint(state, step=step, blocking=False, val_loss=float(step)))
        state["w"] += 1

    for step, save in enumerate(saves):
        found = manager.load_checkpoint(save.result())
        np.testing.assert_array_equal(found["model_state_dict"]["w"], np.full(1000, step + 1.0))
    assert [row.step for row in manager.list_checkpoints()] == [3, 2, 1, 0]


def test_a_lazy_save_is_recorded_like_any_other(manager):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()

    save = manager.save_checkpoint(model, optimizer, step=1, blocking=False, lazy=True)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()

    assert torch.equal(manager.load_checkpoint(save.result())["model_state_dict"]["weight"], before)


def test_a_background_failure_that_nobody_asked_for_is_raised_by_the_next_save(manager, monkeypatch):
    real = type(manager.connection).record_saved

    def refuse(*args, **options):
        raise RowRefused("no")

    monkeypatch.setattr(type(manager.connection), "record_saved", refuse)
    manager.save_checkpoint(STATE, step=1, blocking=False).wait()
    monkeypatch.setattr(type(manager.connection), "record_saved", real)

    with pytest.raises(BackgroundSaveFailed, match="nobody asked for its result: no"):
        manager.save_checkpoint(STATE, step=2)
    assert manager.save_checkpoint(STATE, step=3)


def test_a_program_that_ends_finishes_its_background_saves_first(tmp_path):
    code = f"""
import numpy as np
from model_checkpoint import EnhancedCheckpointManager, ExperimentTracker
run = ExperimentTracker("x", database_url="sqlite:///{tmp_path}/c.db")
manager = EnhancedCheckpointManager(run, "{tmp_path}/root")
manager.save_checkpoint({{"w": np.ones(9)}}, step=1, blocking=False)
print(run.experiment_id)
"""
    run = subprocess.check_output([sys.executable, "-c", code], text=True).strip()

    with EnhancedCheckpointManager(None, f"{tmp_path}/root", database_url=f"sqlite:///{tmp_path}/c.db") as manager:
        assert [row.step for row in manager.list_checkpoints(run)] == [1]


def test_numpy_and_jax_states_are_saved_where_torch_is_not_installed(tmp_path):
    code = f"""
import sys
sys.modules["torch"] = None
import numpy as np, jax.numpy as jnp
from model_checkpoint import EnhancedCheckpointManager, ExperimentTracker
with ExperimentTracker("x", database_url="sqlite:///{tmp_path}/c.db") as run:
    with EnhancedCheckpointManager(run, "{tmp_path}/root") as manager:
        id = manager.save_checkpoint({{"a": np.ones(3), "b": jnp.ones(2)}}, step=1, val_loss=0.5)
        found = manager.load_checkpoint(checkpoint_type="best_val_loss")["model_state_dict"]
        assert found["a"].sum() == 3 and found["b"].sum() == 2
        assert manager.resume({{"a": np.zeros(3), "b": jnp.zeros(2)}}).checkpoint.id == id
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
