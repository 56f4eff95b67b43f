"""A rank dies, stops, is interrupted, or its disk fails, in each phase: all learn it, and nothing half-done is seen."""

import errno
import shutil
import signal
from functools import partial

import numpy as np
import pytest
from tests.distributed.faults.fault_scenes import (
    BESIDE,
    BUCKET_PATIENCE,
    PATIENCE,
    Trap,
    TrappedCalls,
    TrappedCoordinator,
    bucket_trials,
    outcome_of,
    state_of,
    trials,
)
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.testing.faults import Fault, FaultyCalls, Kind

pytestmark = [pytest.mark.slow, pytest.mark.distributed, pytest.mark.fault]

SCENES = "tests.distributed.faults.fault_scenes"
FAILURES = [(Kind.FAIL, errno.ENOSPC), (Kind.FAIL, errno.EIO), (Kind.LOSE_REPLY, errno.EIO)]
LOADED = 4.0  # seconds more than it takes, where others want the machine too
AT_ONCE = 2  # groups beside each other: most of their time they wait
FORMATS = {"replaced whole": mc.CheckpointFormat.CONSOLIDATED}  # of what is replaced
COMMITTED = ("published", "vote said", "verdict put", "manifest put")  # what comes later changes nothing any more


def first_saved(roots, names):
    """A checkpoint in each root, as it is before anything happens."""
    for name in names:
        mc.save(roots / name, state_of(0, 1), step=1)


def is_second(root, way):
    """Whether the root has the second checkpoint; all that is in it must be whole, and the first one be as it was."""
    steps = [info.step for info in mc.list_checkpoints(root)]
    assert all(health.ok for health in mc.verify(root)), root
    newest = mc.load(root, parts=["all", "step"])
    assert np.array_equal(newest["all"], state_of(0, newest["step"])["all"]), root
    if way not in BESIDE:
        assert steps == [1], root
        return newest["step"] == 2
    assert steps in ([1], [2, 1]), root
    assert np.array_equal(mc.load(root, step=1, parts="all")["all"], state_of(0, 1)["all"]), root
    return steps == [2, 1]


def check_told(told, root, way, phase, victim, errors, *, heard=True):
    """What must hold of those who live, whatever happened to the victim; its last word may not have been ``heard``."""
    committed = is_second(root, way)
    trial = f"{way} at {phase} of rank {victim}: {told}"
    assert committed == (way != "load" and phase in COMMITTED) or (phase == "vote said" and not heard), trial
    assert all(one["done"] == committed for one in told), trial
    if committed:
        return
    assert all((one["error"] == "PartlyLoaded") == one["changed"] for one in told), trial
    why = {one["error"] for one in told if not one["changed"]}
    assert len(why) <= 1, trial
    assert why <= set(errors), trial
    assert all(one["ranks"] == [victim] and f"rank {victim}" in one["message"] for one in told), trial
    assert not any(one["changed"] for one in told) or phase in ("done0", "end0"), trial


def check_group(group, roots, world, fault, victim):
    others = [rank for rank in range(world) if rank != victim]
    told = [result["value"] for result in group.results(others, seconds=120.0)]  # one scene goes through all trials
    struck = float((roots / "struck").read_text())
    for way, phase in trials(victim):
        name = f"{way} {phase}"
        heard = fault == "stop"  # the system may drop what a process has sent when it dies
        outcomes = [one[name] for one in told]
        check_told(outcomes, roots / name, way, phase, victim, ["RankLost"], heard=heard)
        assert all(one["at"] - struck < 2 * PATIENCE + LOADED for one in outcomes), (name, struck, outcomes)
    if fault != "stop":
        assert group.result(victim) is None
        return
    group.signal(victim, signal.SIGCONT)  # the sleeper wakes when all others have reported
    late = group.results([victim])[0]["value"]
    for way, phase in trials(victim):
        name, committed = f"{way} {phase}", way != "load" and phase in COMMITTED
        assert late[name]["done"] == committed or phase == "end0", (name, late[name])  # all it had left was to say so
        assert is_second(roots / name, way) == committed, name


@pytest.mark.parametrize("fault", ["kill", "stop", "term"])
@pytest.mark.parametrize("world", [2, 4])
def test_all_ranks_learn_of_one_that_is_gone_and_nothing_half_done_is_seen(zygote, tmp_path, world, fault):
    waiting = list(range(world))
    while waiting:
        victims, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
        groups = {}
        for victim in victims:
            roots = tmp_path / str(victim)
            first_saved(roots, [f"{way} {phase}" for way, phase in trials(victim)])
            arguments = {"roots": str(roots), "fault": fault, "victim": victim}
            groups[victim] = zygote.start(f"{SCENES}:under_signal", world, roots / "scene", **arguments)
        try:
            for victim, group in groups.items():
                check_group(group, tmp_path / str(victim), world, fault, victim)
        finally:
            for group in groups.values():
                group.end()


@pytest.mark.s3
def test_all_ranks_learn_of_one_that_is_killed_while_they_save_to_a_bucket(zygote, moto, tmp_path):
    store_at, groups = partial(ObjectStore, store=moto.client("bucket")), {}
    try:
        for victim in (0, 1):
            root = f"s3://bucket/killed-ranks/{victim}"
            for way, phase in bucket_trials(victim):
                mc.save(store_at(f"{root}/{way}-{phase.replace(' ', '-')}"), state_of(0, 1), step=1)
            arguments = {"roots": str(tmp_path / str(victim)), "root": root, "victim": victim}
            arguments["environment"] = moto.environment()
            scene, folder = f"{SCENES}:killed_at_a_bucket", tmp_path / str(victim) / "scene"
            groups[victim] = zygote.start(scene, 2, folder, **arguments)
        for victim, group in groups.items():
            told = group.results([1 - victim], seconds=120)[0]["value"]
            struck = float((tmp_path / str(victim) / "struck").read_text())
            assert group.result(victim) is None
            for way, phase in bucket_trials(victim):
                outcome = told[f"{way} {phase}"]
                store = store_at(f"s3://bucket/killed-ranks/{victim}/{way}-{phase.replace(' ', '-')}")
                check_told([outcome], store, way, phase, victim, ["RankLost"], heard=False)
                late = outcome["at"] - struck
                assert late < 2 * BUCKET_PATIENCE + LOADED, (victim, way, phase, late, outcome)
    finally:
        for group in groups.values():
            group.end()


def test_a_rank_whose_disk_is_slow_but_moves_is_waited_for(zygote, tmp_path):
    patience, groups = 8.0, {}
    for slow in (0, 1):
        arguments = {"root": str(tmp_path / str(slow)), "patience": patience, "seconds": 2.4, "slow": slow}
        groups[slow] = zygote.start(f"{SCENES}:beside_a_slow_disk", 2, tmp_path / f"scene{slow}", **arguments)
    try:
        for slow, group in groups.items():
            assert group.values()[slow]["slept"] > 2 * patience
            assert [info.step for info in mc.list_checkpoints(tmp_path / str(slow))] == [2, 1]
            assert (mc.load(tmp_path / str(slow), per_rank=slow)["own"] == slow).all()
    finally:
        for group in groups.values():
            group.end()


@pytest.mark.parametrize("world", [2, 4])
def test_a_rank_that_is_interrupted_in_any_phase_takes_the_others_along_at_once(tmp_path, world):
    for victim in range(world):
        for way, phase in trials(victim):
            if way == "async":
                continue  # an interrupt comes to the thread of the program, never to one of ours
            root = tmp_path / f"{victim} {way} {phase}"
            first_saved(tmp_path, [root.name])

            def spring():
                raise KeyboardInterrupt

            def work(ranks, root=root, victim=victim, way=way, phase=phase):
                trap = Trap(phase if ranks.rank == victim else None, spring)
                store = LocalStore(root, calls=TrappedCalls(trap))
                return outcome_of(ranks.rank, store, TrappedCoordinator(ranks, trap), way)

            told = all_well(on_ranks(world, work, patience=5 * PATIENCE))
            assert told.pop(victim)["error"] == "KeyboardInterrupt", (root.name, told)
            check_told(told, root, way, phase, victim, ["RankFailed"], heard=False)


def failures_of(victim, count, world):
    """Which call fails in which way."""
    kinds = range(len(FAILURES))
    if world == 2:
        return [(at, failure) for at in range(1, count + 1) for failure in kinds]
    return [(at, (at + victim) % len(FAILURES)) for at in range(1, count + 1)]


@pytest.mark.parametrize("way", ["save", "async", "consolidated", "overwrite", "replaced whole", "load"])
@pytest.mark.parametrize("world", [2, 4])
def test_whichever_call_to_the_disk_of_a_rank_fails_all_ranks_tell_the_same(tmp_path, world, way):
    """Every call of two ranks fails in each of three ways; of four in one of them, of each rank in another."""

    def attempt(name, victim, fault):
        shutil.copytree(tmp_path / "before", tmp_path / name)  # quicker than to save it as often
        calls = [FaultyCalls(fault if rank == victim else None) for rank in range(world)]

        def work(ranks):
            return outcome_of(ranks.rank, LocalStore(tmp_path / name, calls=calls[ranks.rank]), ranks, way)

        return all_well(on_ranks(world, work)), [len(one.trace) for one in calls]

    mc.save(tmp_path / "before", state_of(0, 1), step=1, format=FORMATS.get(way, mc.CheckpointFormat.MULTI_SHARD))
    counts = attempt("counted", None, None)[1]
    assert min(counts) > (8 if way == "load" else 20)
    errors = set()
    for victim, count in enumerate(counts):
        for at, failure in failures_of(victim, count, world):
            kind, code = FAILURES[failure]
            name = f"{victim} {at} {failure}"
            told, _ = attempt(name, victim, Fault(kind=kind, at=at, code=code))
            committed, trial = is_second(tmp_path / name, way), f"rank {victim}, call {at}, {kind} {code}: {told}"
            shutil.rmtree(tmp_path / name)
            why = {
                (one["done"], one.get("error"), one.get("message")) for one in told if not one["changed"] or one["done"]
            }
            midway = [one for one in told if one["changed"] and not one["done"]]  # these tell what was changed, too
            assert len({one["done"] for one in told}) == 1 >= len(why), trial
            assert way == "load" or not midway, trial
            assert all(one["error"] == "PartlyLoaded" for one in midway), trial
            one = told[0]
            errors |= {error for _, error, _ in why}
            if one["done"]:
                assert committed or way == "load", trial
            elif one["error"] != "DurabilityUnknown":
                assert not committed, trial
                assert f"rank {victim} of {world}: " in one["message"], trial
    # which call is the last flush, and so in which of the three ways it fails, depends on who was first
    assert {"DiskFull", "StorageFailure"} <= errors <= {None, "DiskFull", "StorageFailure", "DurabilityUnknown"}
