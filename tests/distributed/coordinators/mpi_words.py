"""What mpirun starts on two ranks: they say words to each other, and each writes down what it has heard and seen."""

import json
import struct
import sys
import threading
import time
from pathlib import Path

SOON, PAST = 20.0, 0.0  # seconds that nothing here takes; a moment that is over: look once


class Pair:
    """Two ranks of which one speaks and the other listens; the speaker does nothing else until it was heard."""

    def __init__(self, world, ranks):
        self.world, self.ranks = world, ranks

    def say(self, speaker, key, value=b"a word", put=None):
        """What the listener hears, on both."""
        if self.ranks.rank == speaker:
            (put or self.ranks.put)(key, value)
            return self.world.recv(source=1 - speaker)
        heard = {name: word.decode() for name, word in self.ranks.collect([key], time.monotonic() + SOON).items()}
        self.world.send(heard, speaker)
        return heard


def in_thread(work):
    """What it returns, or the error it raises, in a thread that did not start MPI."""
    told = []

    def run():
        try:
            told.append(work())
        except Exception as error:  # noqa: BLE001 - told
            told.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return told[0]


def words(pair):
    """One of each rank, one that says nothing, and what there is of a word that nobody says."""
    mine = f"save-1/vote/{pair.ranks.rank}"
    pair.ranks.put(mine, b"of my own")
    some = pair.ranks.collect([mine, "save-1/never/0"], PAST)
    return [
        pair.say(1, "save-1/mine/1", b"from one"),
        pair.say(0, "save-1/made/0", b"from nought"),
        pair.say(0, "save-1/done/0", b""),
        {key: word.decode() for key, word in some.items()},
    ]


def forgotten(pair):
    """Which of nine calls of a topic are remembered, by who said it and who heard it."""
    keys = [f"count-{number}/vote/1" for number in range(1, 10)]
    for key in keys:
        pair.say(1, key)
    return [key for key in keys if key in pair.ranks.collect(keys, PAST)]


def many_at_a_look(pair):
    """How many messages that have arrived one look takes in."""
    keys = [f"many-{number}/vote/0" for number in range(3)]
    under_way = [
        pair.ranks.scope.comm.Isend(struct.pack("<I", len(key)) + key.encode() + b"it", pair.ranks.rank) for key in keys
    ]
    heard = pair.ranks.collect(keys, PAST)
    for one in under_way:
        one.Wait()
    return [heard[key].decode() for key in keys if key in heard]


def by_another_thread(pair):
    """What waits for the thread that may talk, and what is heard once that one came by."""
    waiting = []

    def put(key, value):
        in_thread(lambda: pair.ranks.put(key, value))
        waiting.append(len(pair.ranks.scope._outgoing))
        if pair.ranks.attend is not None:
            pair.ranks.attend()

    return [pair.say(0, "thread-1/made/0", b"at last", put), waiting]


def made_anew(mpi, coordinator):
    """How many ranks there are, as a communicator says and its coordinator, in one handle after the other."""
    told = []
    for color in (0, mpi.COMM_WORLD.rank, 0):
        comm = mpi.COMM_WORLD.Split(color)
        told.append([comm.size, coordinator(comm).world_size])
        comm.Free()
    return told


def main(folder, level):
    import mpi4py

    mpi4py.rc.thread_level = level
    from mpi4py import MPI

    from model_checkpoint.distributed import MpiCoordinator

    ranks, alone = MpiCoordinator(patience=7.0), MpiCoordinator(MPI.COMM_SELF)
    alone.put("save-1/vote/0", b"to nobody")
    fatal = MPI.COMM_WORLD.Dup()
    fatal.Set_errhandler(MPI.ERRORS_ARE_FATAL)
    pair = Pair(MPI.COMM_WORLD, ranks)
    facts = {
        "who": [ranks.rank, ranks.world_size, ranks.patience, alone.rank, alone.world_size],
        "scopes": [MpiCoordinator().scope is ranks.scope, alone.scope is ranks.scope],
        "alone": [len(alone.collect(["save-1/vote/0"], PAST)), len(alone.scope._under_way)],
        "returns errors": MpiCoordinator(fatal).scope.comm.Get_errhandler() == MPI.ERRORS_RETURN,
        "attends": ranks.attend is not None,
        "in a thread": in_thread(lambda: MpiCoordinator().world_size),
        "words": words(pair),
        "remembered": forgotten(pair),
        "many at a look": many_at_a_look(pair),
        "by another thread": by_another_thread(pair),
        "made anew": made_anew(MPI, MpiCoordinator),
    }
    (folder / f"facts-{ranks.rank}.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
