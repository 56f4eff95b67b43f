"""Trial: how fast saving, loading and verifying are in one place; in a root of its own that is gone afterwards."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from model_checkpoint.cli.quantities import size
from model_checkpoint.engine.background.save_async import save_async
from model_checkpoint.engine.reading.load import load
from model_checkpoint.engine.reading.verify import verify
from model_checkpoint.engine.root.delete import delete
from model_checkpoint.engine.writing.save import save
from model_checkpoint.errors import CheckpointException, DiskFull, OptionInvalid
from model_checkpoint.options import MIB, Graces
from model_checkpoint.storage.locate import open_store

PREFIX = ".bench-"
_ARRAYS = 8
_BLOCK = 16 * MIB
_LEAST = 1_000_000
_COPIES = 4  # a plain file, a save, a save in the background, and what is deleted and not yet gone

State = Mapping[str, npt.NDArray[np.float32]]
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Medians; ``stall_seconds`` is what the call of save_async takes, ``background_seconds`` until it is durable."""

    root: str
    size_bytes: int
    rounds: int
    seconds: Mapping[str, float]  # by operation: write (a plain file, flushed), save, load, verify
    stall_seconds: float
    background_seconds: float


def measure(root: str, nbytes: int, *, rounds: int, tell: Tell) -> Measured:
    """Measure in ``root``'s own place; whatever happens, what was written for it is removed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = measure(f"{folder}/runs", 1 << 20, rounds=1, tell=lambda text: None)
        ...     sorted(found.seconds), os.listdir(folder)
        (['load', 'save', 'verify', 'write'], [])
    """
    if nbytes < _LEAST:
        raise OptionInvalid(f"--size must be at least 1 MB to mean anything, got {size(nbytes)}.")
    numbers = np.random.default_rng(0)
    state = {f"w{i}": numbers.random(nbytes // 4 // _ARRAYS, np.float32) for i in range(_ARRAYS)}
    with _place(root) as place:
        require_room(place, nbytes)
        taken = [_round(place, state, number, tell) for number in range(rounds)]
    middle = {name: median(one[name] for one in taken) for name in taken[0]}
    stall, background = middle.pop("stall"), middle.pop("background")
    total = sum(array.nbytes for array in state.values())
    return Measured(
        root=root, size_bytes=total, rounds=rounds, seconds=middle, stall_seconds=stall, background_seconds=background
    )


def _round(place: str, state: State, number: int, tell: Tell) -> dict[str, float]:
    taken: dict[str, float] = {}

    def timed(name: str, work: Callable[[], object]) -> None:
        tell(f"round {number + 1}: {name}")
        start = time.perf_counter()
        work()
        taken[name] = time.perf_counter() - start

    timed("write", lambda: _write(place, state))
    timed("save", lambda: save(place, dict(state), step=1))
    timed("load", lambda: load(place, step=1, framework="numpy"))
    timed("verify", lambda: verify(place, step=1))
    start = time.perf_counter()
    job = save_async(place, dict(state), step=2)
    taken["stall"] = time.perf_counter() - start
    tell(f"round {number + 1}: save in the background")
    job.result()
    taken["background"] = time.perf_counter() - start
    _clear(place)
    return taken


def _write(place: str, state: State) -> None:
    """A plain file, flushed to the medium; of a bucket one object through the store itself."""
    if "://" in place:
        store = open_store(place)
        stage = store.stage("plain", secrets.token_hex(8))
        try:
            total = sum(array.nbytes for array in state.values())
            writer, at = stage.create("plain.bin", total), 0
            for array in state.values():
                writer.write(at, array.data.cast("B"))
                at += array.nbytes
            writer.seal()
        finally:
            stage.abort()
        return
    path = os.path.join(place, "plain.bin")
    try:
        with open(path, "xb", buffering=0) as file:
            for array in state.values():
                rest = array.data.cast("B")
                for start in range(0, len(rest), _BLOCK):
                    file.write(rest[start : start + _BLOCK])
            os.fsync(file.fileno())
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)


@contextmanager
def _place(root: str) -> Iterator[str]:
    """A root for the trial below ``root``; it goes, and so do folders that were made for it."""
    name = f"{PREFIX}{secrets.token_hex(6)}"
    if "://" in root:
        place = f"{root.rstrip('/')}/{name.lstrip('.')}"
        try:
            yield place
        finally:
            _clear(place)
            _forget_objects(place)
        return
    above = os.path.abspath(os.path.expanduser(root))
    made = _missing(above)
    place = os.path.join(above, name)
    try:
        os.makedirs(place)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        for folder in reversed(made):
            with suppress(OSError):
                os.rmdir(folder)


def _missing(path: str) -> list[str]:
    """The folders of a path that are not there yet, outermost first."""
    missing: list[str] = []
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        missing.insert(0, path)
        path = os.path.dirname(path)
    return missing


def _clear(place: str) -> None:
    """Delete every checkpoint for good."""
    store = open_store(place)
    with suppress(CheckpointException):
        for name in store.names():
            delete(store, name=name)
        store.sweep(Graces(trash=0.0))


def _forget_objects(place: str) -> None:
    """Remove what a bucket keeps of deleted checkpoints: nobody can mean those of a trial any more."""
    if place.startswith("memory://"):
        return
    from model_checkpoint.storage.objects.requests.bucket import Address, connect

    with suppress(CheckpointException):
        bucket = connect(Address.parse(place))
        for item in bucket.list():
            bucket.delete(item.key)


def require_room(place: str, nbytes: int) -> None:
    """Refuse a trial that would fill the medium."""
    free = open_store(place).free_bytes()
    if free is not None and free < _COPIES * nbytes:
        raise DiskFull(
            f"{place}: the trial needs {size(_COPIES * nbytes)}, {size(free)} are free. Give a smaller --size.",
            place,
            needed=_COPIES * nbytes,
            free=free,
        )
