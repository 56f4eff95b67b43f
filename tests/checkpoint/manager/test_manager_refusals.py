"""What would be lost or misread is refused by its name, and nothing is saved."""

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.errors import OptionInvalid, ProtectionFailed
from model_checkpoint.hooks import HookEvent

STATE = {"w": np.ones(2)}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"metadata": {"catalog": 1}}, r"metadata: 'catalog' is where the manager keeps its own"),
        ({"metadata": {"config": {"lr": 1}}}, r"metadata: 'config' .* or give config="),
        ({"metadata": 5}, r"metadata is a mapping, got 5"),
        ({"tags": "abc"}, r"tags are several texts, e.g. tags=\['release'\], got 'abc'"),
        ({"tags": 5}, r"tags are several texts, .* got 5"),
        ({"tags": ["a", 5]}, r"a tag is a text, got 5"),
        ({"tags": ["  "]}, r"a tag is a text, got '  '"),
        ({"metrics": 5}, r"metrics is a mapping, got 5"),
        ({"notes": 5}, r"notes are a text, got 5"),
    ],
)
def test_nonsense_is_refused_whether_a_caller_gave_it_or_a_hook(manager, given, said):
    with pytest.raises(OptionInvalid, match=said):
        manager.save_checkpoint(STATE, step=1, **given)

    manager.register_hook(
        "change", lambda context: {"context_updates": given}, events=[HookEvent.BEFORE_CHECKPOINT_SAVE]
    )
    with pytest.raises(OptionInvalid, match=said):
        manager.save_checkpoint(STATE, step=1)

    assert manager.list_checkpoints() == []
    assert [(one.action, one.outcome) for one in manager.audit().items] == [("save", "failed")]


def test_what_is_given_well_comes_back(manager):
    id = manager.save_checkpoint(STATE, step=1, tags={"a"}, metadata={"who": "me"}, config={"lr": 0.1})

    row = manager.get_checkpoint(id)
    assert (list(row.tags), row.metadata) == (["a"], {"who": "me", "config": {"lr": 0.1}})


@pytest.mark.parametrize("limit", [-1, True, 1.5, "2"])
def test_a_limit_that_is_none_is_refused(manager, limit):
    manager.save_checkpoint(STATE, step=1)

    with pytest.raises(OptionInvalid, match=f"limit must be None or a whole number of 0 or more, got {limit!r}"):
        manager.list_checkpoints(limit=limit)
    assert (len(manager.list_checkpoints(limit=1)), manager.list_checkpoints(limit=0)) == (1, [])


def test_finishing_the_saves_waits_for_parity_and_mirror(make, tmp_path):
    """Whoever ends a job after it counts on both."""
    manager = make(mirror=f"{tmp_path}/mirror", parity="xor")
    for step in range(4):
        manager.save_checkpoint({"w": np.ones(300_000)}, step=step)

    manager.finish_saves()

    assert [info.step for info in mc.list_checkpoints(f"{tmp_path}/mirror")] == [3, 2, 1, 0]
    assert all([*one.glob("*parity*")] for one in (tmp_path / "root" / "checkpoints").iterdir())


def test_closing_a_manager_tells_of_a_mirror_that_could_not_be_made(run, tmp_path):
    (tmp_path / "mirror").write_text("a file where the mirror should be")
    manager = mc.EnhancedCheckpointManager(run, f"{tmp_path}/root", mirror=f"{tmp_path}/mirror")
    manager.save_checkpoint(STATE, step=1)

    with pytest.raises(ProtectionFailed, match="its parity or mirror could not be made"):
        manager.close()
