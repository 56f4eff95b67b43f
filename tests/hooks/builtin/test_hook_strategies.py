"""Strategies work on a catalog of real checkpoints: what goes, goes through it, and what it refuses stays."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import model_checkpoint as mc
from model_checkpoint.hooks import (
    BestModelSelectionHook,
    HookInvalid,
    SmartCheckpointRetentionHook,
    StrategyCatalog,
)
from model_checkpoint.hooks.builtin.strategies.score import closeness


@dataclass(frozen=True)
class Row:
    id: str
    step: int
    loss: float | None = None
    val_loss: float | None = None
    epoch: int | None = None
    metrics: dict = field(default_factory=dict)
    file_size: int | None = 1
    created_at: float = 0.0
    pinned: bool = False


class RootCatalog:
    """A catalog over the checkpoints of a root, which are really saved and really deleted."""

    def __init__(self, root):
        self.root, self.pins, self.refuses, self.said = root, set(), set(), []

    def save(self, step, **metrics):
        return mc.save(self.root, {"w": np.full(100, step)}, step=step, metrics=metrics).id

    def checkpoints(self):
        for info in mc.list_checkpoints(self.root):
            loss = {key: info.metrics.get(key) for key in ("loss", "val_loss")}
            yield Row(
                info.id, info.step, epoch=info.step, metrics=dict(info.metrics), pinned=info.id in self.pins, **loss
            )

    def delete(self, checkpoint_id):
        if checkpoint_id in self.refuses:
            raise PermissionError("a reader has a lease on it")
        mc.delete(self.root, id=checkpoint_id)

    def pin(self, checkpoint_id):
        self.said.append(("pin", checkpoint_id))
        self.pins.add(checkpoint_id)

    def unpin(self, checkpoint_id):
        self.said.append(("unpin", checkpoint_id))
        self.pins.remove(checkpoint_id)

    def steps(self):
        return sorted(info.step for info in mc.list_checkpoints(self.root))


@pytest.fixture
def catalog(tmp_path):
    return RootCatalog(tmp_path / "run")


def test_the_catalog_of_the_tests_is_one(catalog):
    assert isinstance(catalog, StrategyCatalog)


@pytest.mark.parametrize(
    ("strategy", "kept"),
    [
        ("time_based", [2, 5, 6]),
        ("performance_based", [2, 4, 6]),
        ("epoch_based", [2, 5, 6]),
    ],
)
def test_what_is_worth_least_goes_through_the_catalog(catalog, manager, strategy, kept):
    for step, loss in enumerate([0.9, 0.1, 0.5, 0.2, 0.8, 0.7], 1):
        catalog.save(step, loss=loss)
    manager.register_hook(
        SmartCheckpointRetentionHook(catalog, max_checkpoints=3, retention_strategy=strategy, keep_epoch_intervals=[5])
    )

    result = manager.fire_hook("after_retention_policy")

    assert catalog.steps() == kept
    assert len(result.results["SmartCheckpointRetentionHook"]["deleted"]) == 3
    assert manager.dead_letters() == ()


def test_what_was_deleted_can_be_brought_back_because_the_catalog_did_it(catalog):
    for step in (1, 2, 3):
        catalog.save(step, loss=float(step))

    SmartCheckpointRetentionHook(catalog, max_checkpoints=2).apply()
    assert catalog.steps() == [1, 3]
    mc.undelete(catalog.root, step=2)
    assert catalog.steps() == [1, 2, 3]


def test_what_the_catalog_refuses_stays_and_the_others_still_go(catalog, caplog):
    ids = {step: catalog.save(step, loss=float(step)) for step in range(1, 6)}
    catalog.refuses.add(ids[3])

    told = SmartCheckpointRetentionHook(catalog, max_checkpoints=2).apply()

    assert catalog.steps() == [1, 3, 5]
    assert told["refused"] == {ids[3]: "PermissionError: a reader has a lease on it"}
    assert "stays, because the catalog refused" in caplog.text


def test_a_deletion_that_leads_back_to_the_hook_does_nothing_twice(catalog, manager):
    hook = SmartCheckpointRetentionHook(catalog, max_checkpoints=1)
    deleted = []

    def delete(checkpoint_id):
        deleted.append(checkpoint_id)
        manager.fire_hook("after_retention_policy")
        mc.delete(catalog.root, id=checkpoint_id)

    catalog.delete = delete
    manager.register_hook(hook)
    for step in (1, 2, 3):
        catalog.save(step)

    manager.fire_hook("after_retention_policy")

    assert (len(deleted), len(set(deleted)), catalog.steps()) == (2, 2, [3])


def row(step, **more):
    return Row(str(step), step, **more)


ROWS = st.lists(
    st.builds(
        row,
        st.integers(0, 50),
        loss=st.none() | st.floats(allow_infinity=False),
        val_loss=st.none() | st.floats(),
        epoch=st.none() | st.integers(0, 60),
        file_size=st.none() | st.integers(0, 10**10),
        pinned=st.booleans(),
    ),
    unique_by=lambda one: one.id,
    max_size=20,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    ROWS,
    st.sampled_from(["performance_based", "time_based", "epoch_based", "hybrid"]),
    st.integers(1, 10),
    st.none() | st.floats(0.1, 50),
)
def test_the_newest_the_best_and_the_pinned_stay_whatever_the_limits(rows, strategy, most, gigabytes):
    hook = SmartCheckpointRetentionHook(
        None, max_checkpoints=most, retention_strategy=strategy, max_storage_gb=gigabytes
    )

    plan = hook.plan(rows)

    assert set(plan.keep) | set(plan.drop) == {one.id for one in rows}
    assert not set(plan.keep) & set(plan.drop)
    sure = {one.id for one in rows if one.pinned} | ({str(max(one.step for one in rows))} if rows else set())
    assert sure <= set(plan.keep)
    assert len(plan.keep) <= max(most, len(sure) + 1)
    losses = {
        one.id: one.val_loss if one.val_loss is not None and one.val_loss == one.val_loss else one.loss for one in rows
    }
    numbers = {name: loss for name, loss in losses.items() if loss is not None and loss < math.inf}
    if numbers:
        assert any(numbers.get(name) == min(numbers.values()) for name in plan.keep)
    if gigabytes is not None:
        free = [one for one in rows if one.id in plan.keep and plan.keep[one.id].startswith(strategy)]
        assert not free or sum(one.file_size or 0 for one in rows if one.id in plan.keep) <= gigabytes * 1e9


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_a_smaller_loss_is_never_worth_less(one, other):
    low, high = sorted((one, other))

    assert closeness(low) >= closeness(high) > 0


def test_a_difference_below_the_threshold_is_none_and_the_newer_stays():
    rows = [row(1, loss=0.5004), row(2, loss=0.5001), row(3, loss=0.3), row(4, loss=0.9)]
    reverse = [row(1, loss=0.5001), row(2, loss=0.5004), row(3, loss=0.3), row(4, loss=0.9)]
    hook = SmartCheckpointRetentionHook(None, max_checkpoints=3, min_improvement_threshold=0.001)

    assert sorted(hook.plan(rows).keep) == sorted(hook.plan(reverse).keep) == ["2", "3", "4"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_checkpoints": 0}, "max_checkpoints is at least 1"),
        ({"min_improvement_threshold": -1}, "min_improvement_threshold is not below 0"),
        ({"max_storage_gb": 0}, "max_storage_gb is above 0"),
        ({"retention_strategy": "time_base"}, "Did you mean 'time_based'"),
    ],
)
def test_retention_refuses_what_it_cannot_do(options, words):
    with pytest.raises(HookInvalid, match=words):
        SmartCheckpointRetentionHook(None, **options)


@pytest.mark.parametrize("kind", [SmartCheckpointRetentionHook, BestModelSelectionHook])
def test_without_a_catalog_nothing_is_done_and_that_is_said(kind):
    with pytest.raises(HookInvalid, match="no catalog to work on"):
        kind().apply()


# --- best models -----------------------------------------------------------------------------------------------------


def test_the_best_three_are_pinned_before_retention_and_listed(catalog, manager, tmp_path):
    ids = {step: catalog.save(step, val_loss=loss) for step, loss in enumerate([0.9, 0.1, 0.5, 0.2, 0.8], 1)}
    index = tmp_path / "best.json"
    manager.register_hook(BestModelSelectionHook(catalog, index_file=index))

    result = manager.fire_hook("before_retention_policy")

    assert result.results["BestModelSelectionHook"]["best"] == [ids[2], ids[4], ids[3]]
    assert catalog.pins == {ids[2], ids[4], ids[3]}
    told = json.loads(index.read_text())["best"]
    assert [(one["rank"], one["score"], one["metrics"]) for one in told] == [
        (1, -0.1, {"val_loss": 0.1}),
        (2, -0.2, {"val_loss": 0.2}),
        (3, -0.5, {"val_loss": 0.5}),
    ]


def test_only_its_own_pins_are_taken_back_also_after_a_restart(catalog, tmp_path):
    index = tmp_path / "best.json"
    mine = catalog.save(1, val_loss=0.5)
    theirs = catalog.save(2, val_loss=0.6)
    catalog.pin(theirs)
    BestModelSelectionHook(catalog, top_k=2, index_file=index).apply()

    better = [catalog.save(step, val_loss=0.1) for step in (3, 4)]
    told = BestModelSelectionHook(catalog, top_k=2, index_file=index).apply()

    assert (sorted(told["pinned"]), told["unpinned"]) == (sorted(better), [mine])
    assert catalog.pins == {theirs, *better}


def test_no_file_is_copied_or_deleted(catalog, tmp_path):
    for step in range(1, 5):
        catalog.save(step, val_loss=float(step))
    before = sorted(path for path in Path(catalog.root).rglob("*"))

    BestModelSelectionHook(catalog, index_file=tmp_path / "best.json").apply()

    assert sorted(path for path in Path(catalog.root).rglob("*")) == before


def test_weights_decide_and_only_metrics_that_all_have_count():
    rows = [
        row(1, val_loss=0.2, metrics={"val_accuracy": 0.5}),
        row(2, val_loss=0.3, metrics={"val_accuracy": 0.9}),
        row(3, val_loss=0.25, metrics={"val_accuracy": 0.8, "accuracy": 1.0}),
    ]

    best = BestModelSelectionHook(None).select(rows)

    assert [one.checkpoint_id for one in best] == ["2", "3", "1"]
    assert best[0].score == pytest.approx(0.6)


def test_a_metric_that_is_no_number_makes_no_candidate():
    rows = [row(1, val_loss=math.nan), row(2, val_loss=0.5), row(3)]

    assert [one.checkpoint_id for one in BestModelSelectionHook(None).select(rows)] == ["2"]


def test_of_two_with_one_score_the_newer_comes_first():
    assert [one.checkpoint_id for one in BestModelSelectionHook(None).select([row(1, loss=0.5), row(2, loss=0.5)])] == [
        "2",
        "1",
    ]


def test_checkpoints_without_a_metric_in_common_have_no_best(caplog):
    assert BestModelSelectionHook(None).select([row(1, loss=0.5), row(2, metrics={"accuracy": 0.5})]) == []
    assert "none of val_loss, loss" in caplog.text


@pytest.mark.parametrize("options", [{"top_k": 0}, {"metric_weights": {}}, {"metric_weights": {"loss": math.nan}}])
def test_selection_refuses_what_it_cannot_do(options):
    with pytest.raises(HookInvalid, match="BestModelSelectionHook: "):
        BestModelSelectionHook(None, **options)
