"""Threads as ranks: quick, and enough wherever no framework has to know of many processes."""

import pickle
import threading

import model_checkpoint as mc
from model_checkpoint.distributed import CheckpointException, LocalCoordinator


def on_ranks(world, work, *, patience=60.0):
    """What ``work(coordinator)`` returned, or the error it raised, on each of ``world`` ranks."""
    outcomes = [None] * world

    def run(coordinator):
        try:
            outcomes[coordinator.rank] = work(coordinator)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            outcomes[coordinator.rank] = error

    coordinators = LocalCoordinator.group(world, patience=patience)
    threads = [threading.Thread(target=run, args=(one,)) for one in coordinators]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def all_well(outcomes):
    """The outcomes, none of which is an error."""
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


def save_all(root, world, state, **options):
    """What each rank is told of a save of ``state(rank)``."""
    return all_well(on_ranks(world, lambda c: mc.save(root, state(c.rank), coordinator=c, **options)))


def told(outcomes):
    """What all ranks raised, which must be one and the same."""
    assert all(isinstance(one, CheckpointException) for one in outcomes), outcomes
    assert len({(type(one), str(one), one.type, one.checkpoint_path) for one in outcomes}) == 1, outcomes
    for one in outcomes:
        again = pickle.loads(pickle.dumps(one))
        assert (str(again), again.type, again.checkpoint_path) == (str(one), one.type, one.checkpoint_path)
    return outcomes[0]
