"""Threads as ranks: quick, and enough wherever no framework has to know of many processes."""

import threading

from model_checkpoint.distributed import LocalCoordinator


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
