"""Every hook that comes with the library is really called, on events that exist, by the manager."""

import inspect
from types import SimpleNamespace

import pytest

import model_checkpoint.hooks as hooks
from model_checkpoint.hooks import BaseHook, HookEvent, HookOutcome


class NoCheckpoints:
    """A catalog of a run that has saved nothing yet."""

    def checkpoints(self):
        return []

    def delete(self, checkpoint_id): ...

    def pin(self, checkpoint_id): ...

    def unpin(self, checkpoint_id): ...


def made(kind, folder):
    options = {
        "GridProgressHook": {"progress_file": folder / "p.jsonl"},
        "ExperimentRecoveryHook": {"recovery_file": folder / "r.jsonl"},
        "GridCoordinatorHook": {"summary_file": folder / "s.json"},
        "SmartCheckpointRetentionHook": {"catalog": NoCheckpoints()},
        "BestModelSelectionHook": {"catalog": NoCheckpoints(), "index_file": folder / "b.json"},
        "WebhookNotifierHook": {"url": "http://127.0.0.1:9/", "private_network": True, "max_attempts": 1},
    }
    return kind(**options.get(kind.__name__, {}))


BUILTIN = [
    kind
    for name in hooks.__all__
    if inspect.isclass(kind := getattr(hooks, name))
    and issubclass(kind, BaseHook)
    and kind.__module__.startswith("model_checkpoint.hooks.builtin")
]


def test_all_of_them_are_looked_at():
    assert len(BUILTIN) == 8


@pytest.mark.parametrize("kind", BUILTIN, ids=lambda kind: kind.__name__)
def test_each_is_called_on_its_events_and_does_not_fail(manager, tmp_path, kind):
    manager.register_hook(made(kind, tmp_path))
    (hook,) = manager.list_hooks()
    assert set(hook.events) <= set(HookEvent)

    for event in HookEvent:
        manager.fire_hook(event, checkpoint_id="c-1", experiment_id="e-1", step=1, loss=0.5, error=OSError("disk"))

    assert [(run.event, run.outcome) for run in manager.timeline()] == [
        (event, HookOutcome.DONE) for event in HookEvent if event in hook.events
    ]
    assert manager.dead_letters() == ()


@pytest.mark.parametrize("kind", BUILTIN, ids=lambda kind: kind.__name__)
def test_none_of_them_says_no_unless_told_to(manager, tmp_path, kind):
    manager.register_hook(made(kind, tmp_path))
    odd = SimpleNamespace(state_dict=dict)

    for event in HookEvent:
        assert manager.fire_hook(event, loss=float("nan"), model=odd, rotation_loss=float("nan"))
