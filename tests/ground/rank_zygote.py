"""Real processes of one program, forked from one that has torch imported, so that a group of ranks starts in no time.

Run as a program it reads orders from its standard input, a JSON line each: start the ranks of a scene, or tell how they
ended. A scene is a function ``scene(rank, world, folder, **arguments)`` of a module of tests; what it returns, or the
error it raises, is left as JSON in the folder.
"""

import contextlib
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

from tests.ground.ports import free_port


class RankGroup:
    """The ranks of one scene, from outside."""

    def __init__(self, pids, folder):
        self.pids, self.folder = pids, folder

    def result(self, rank):
        """What a rank returned or raised, if it has."""
        path = self.folder / f"result-{rank}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def results(self, ranks=None, seconds=60.0):
        """What ranks returned or raised, in their order, once all have; fails the test if one does not."""
        end = time.monotonic() + seconds
        ranks = range(len(self.pids)) if ranks is None else ranks
        while any(self.result(rank) is None for rank in ranks):
            silent = [rank for rank in ranks if self.result(rank) is None]
            heard = {rank: self.result(rank) for rank in ranks if rank not in silent}
            assert time.monotonic() < end, f"no word from {silent} in {self.folder}, others said {heard}"
            time.sleep(0.01)
        return [self.result(rank) for rank in ranks]

    def values(self, seconds=60.0):
        """What the ranks returned; an error of one is raised here."""
        results = self.results(seconds=seconds)
        for rank, result in enumerate(results):
            assert "error" not in result, f"rank {rank}: {result['trace']}"
        return [result["value"] for result in results]

    def signal(self, rank, number):
        """Send a signal to one rank."""
        os.kill(self.pids[rank], number)

    def wait_for(self, name, seconds=60.0):
        """Wait until a rank has left a file of this name."""
        end = time.monotonic() + seconds
        while not (self.folder / name).exists():
            assert time.monotonic() < end, f"{name} never came"
            time.sleep(0.005)

    def end(self):
        """End whatever is left."""
        for pid in self.pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


class Zygote:
    """The process all ranks are forked from."""

    def __init__(self, *imports):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.ground.rank_zygote", *imports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            text=True,
            cwd=Path(__file__).parent.parent.parent,
        )
        assert json.loads(self._process.stdout.readline()) == "ready"

    def start(self, scene, world, folder, **arguments):
        """Start the ranks of a scene, given as ``module:function``."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        order = {"scene": scene, "world": world, "folder": str(folder), "arguments": arguments}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return RankGroup(json.loads(self._process.stdout.readline()), folder)

    def run(self, scene, world, folder, *, seconds=60.0, **arguments):
        """What the ranks of a scene returned."""
        group = self.start(scene, world, folder, **arguments)
        try:
            return group.values(seconds)
        finally:
            group.end()

    def close(self):
        """End the process; its ranks are ended by their tests."""
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()  # to let go of all that it has imported takes it seconds
        self._process.wait()


def _serve():
    for name in sys.argv[1:]:
        importlib.import_module(name)
    _import_rooms()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how ranks ended: they leave files
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a rank prints must not be taken for an answer
    print(json.dumps("ready"), file=out, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        port = free_port()
        pids = [_fork(order, rank, port) for rank in range(order["world"])]
        print(json.dumps(pids), file=out, flush=True)


def _import_rooms():
    """What a save and a load import on first use: ranks that begin with that all at once lose their patience."""
    import model_checkpoint

    for found in pkgutil.walk_packages(model_checkpoint.__path__, "model_checkpoint."):
        room, _, rest = found.name.removeprefix("model_checkpoint.").partition(".")
        if room in ("engine", "tree", "storage", "plan", "format", "manifest", "distributed", "precision"):
            with contextlib.suppress(ImportError):  # of a framework that is not there
                if not any(word in rest for word in ("jax", "tensorflow", "mpi", "objects")):
                    importlib.import_module(found.name)


def _fork(order, rank, port):
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    folder = Path(order["folder"])
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(order["world"]))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with open(folder / f"log-{rank}.txt", "w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        module, function = order["scene"].split(":")
        scene = getattr(importlib.import_module(module), function)
        result = {"value": scene(rank, order["world"], folder, **order["arguments"])}
    except BaseException as error:  # noqa: BLE001 - told to the test
        cause = getattr(error, "__cause__", None)
        result = {
            "error": type(error).__name__,
            "message": str(error),
            "ranks": list(getattr(error, "ranks", ())),
            "cause": type(cause).__name__ if cause is not None else "",
            "trace": traceback.format_exc(),
        }
    draft = folder / f"result-{rank}.part"
    draft.write_text(json.dumps(result))
    draft.rename(folder / f"result-{rank}.json")
    end = time.monotonic() + 30  # a rank that leaves first takes the others' connections, and the store, with it
    while time.monotonic() < end and not all((folder / f"result-{r}.json").exists() for r in range(order["world"])):
        time.sleep(0.01)
    os._exit(0)
    return 0


if __name__ == "__main__":
    _serve()
