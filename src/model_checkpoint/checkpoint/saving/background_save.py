"""Background save: the handle of a save that goes on while training does."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from typing import Any

from model_checkpoint import forks
from model_checkpoint.checkpoint.saving.managed_save import ManagedSave
from model_checkpoint.checkpoint.saving.save_steps import announce, engine_options, reporting_failure, settle
from model_checkpoint.checkpoint.saving.save_timing import SaveTiming
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.checkpoint.storage.backend_io import as_plain, deposit_plain, is_native
from model_checkpoint.checkpoint.storage.backend_registry import name_of
from model_checkpoint.engine.background.save_async import save_async
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.jobs.job import SaveJob
from model_checkpoint.errors import BackgroundSaveFailed, OptionInvalid, SaveTimeout


class CheckpointSave:
    """One save under way; ``result()`` gives its id once it is durable and recorded. May be awaited.

    The process waits for it before it ends.

    Example:
        >>> save = CheckpointSave("c1", lambda: "c1")
        >>> save.result(), save.done()
        ('c1', True)
    """

    def __init__(self, id: str, work: Callable[[], str], job: SaveJob | None = None) -> None:
        self.id = id
        self._job, self._seen = job, False
        self._future: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, args=(work,), name=f"mckpt-record-{id[:8]}", daemon=False)
        self._thread.start()

    def _run(self, work: Callable[[], str]) -> None:
        try:
            self._future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # kept for whoever asks, or for the next save
            self._future.set_exception(error)

    def __repr__(self) -> str:
        return f"<CheckpointSave {self.id} {'done' if self.done() else 'under way'}>"

    def done(self) -> bool:
        """Whether it is recorded, or will never be."""
        return self._future.done()

    @property
    def settled(self) -> bool:
        """Whether it is over, and there is no failure that nobody knows of."""
        return self.done() and (self._seen or self._future.exception() is None)

    def wait(self) -> None:
        """Wait for the end, whatever it is."""
        self._thread.join()

    def result(self, timeout: float | None = None) -> str:
        """The id, once it is durable and recorded; raise what went wrong, or ``TimeoutError`` until then."""
        self._seen = self._seen or self._future.done()
        try:
            found = self._future.result(timeout)
        except TimeoutError as error:
            if self._future.done():
                raise
            raise SaveTimeout(f"checkpoint {self.id}: not recorded after {timeout} s; the save goes on.") from error
        finally:
            self._seen = self._seen or self._future.done()
        return found

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end and return what went wrong, or None."""
        try:
            self.result(timeout)
        except SaveTimeout:
            raise
        except BaseException as error:  # noqa: BLE001  # it is the answer
            return error
        return None

    def cancel(self) -> bool:
        """Stop it; False if it is too late."""
        return self._job is not None and self._job.cancel()

    def wait_staged(self, timeout: float | None = None) -> None:
        """Wait until every byte is copied, so that anything may be written to the state."""
        if self._job is not None:
            self._job.wait_staged(timeout)

    def raise_unseen(self) -> None:
        """Raise a failure that nobody has asked for."""
        if self.done() and not self._seen and (error := self._future.exception()) is not None:
            self._seen = True
            raise BackgroundSaveFailed(
                f"checkpoint {self.id}: an earlier background save failed and nobody asked for its result: {error}",
                inner_exception=error,
            ) from error

    def __await__(self) -> Generator[Any, None, str]:
        import asyncio  # costs more than the rest of this module

        return asyncio.wrap_future(self._future).__await__()


class SavesUnderWay:
    """The background saves of one manager; those of a parent are not a forked child's."""

    def __init__(self) -> None:
        self._saves: list[CheckpointSave] = []
        self._lock = forks.lock()
        forks.in_child(self._forget)

    def _forget(self) -> None:
        self._saves.clear()

    def add(self, save: CheckpointSave) -> None:
        """Keep one until its end, and its failure, if any, are known."""
        with self._lock:
            self._saves = [one for one in self._saves if not one.settled]
            self._saves.append(save)

    def raise_unseen(self) -> None:
        """Raise the first failure that nobody has asked for."""
        with self._lock:
            saves = list(self._saves)
        for save in saves:
            save.raise_unseen()

    def finish(self) -> None:
        """Wait for all; raise the first failure that nobody has asked for."""
        with self._lock:
            saves, self._saves = self._saves, []
        for save in saves:
            save.wait()
        for save in saves:
            save.raise_unseen()


def save_in_background(
    services: Services, order: ManagedSave, parts: Mapping[str, Any], *, lazy: bool = False
) -> CheckpointSave:
    """Copy the state and return; the rest of the save follows in threads."""
    timing = SaveTiming()
    order = announce(services, order, parts)
    timing.stretch("hooks")
    wanted = engine_options(services, order, parts)
    if is_native(services.backend):
        with reporting_failure(services, order):
            job = save_async(services.store, dict(parts), lazy=lazy, busy="queue", **wanted)
        timing.stretch("staging")
        return CheckpointSave(order.id, lambda: _recorded(services, order, job.result, timing, job), job)
    if lazy:
        raise OptionInvalid(
            f"lazy=True is of the native backend; {name_of(services.backend)} gets a copy. Leave lazy out."
        )
    data = copy.deepcopy(as_plain(parts))
    timing.stretch("staging")

    def write() -> CheckpointInfo:
        return deposit_plain(services.backend, services.store, data, **wanted)

    return CheckpointSave(order.id, lambda: _recorded(services, order, write, timing))


def _recorded(
    services: Services,
    order: ManagedSave,
    durable: Callable[[], CheckpointInfo],
    timing: SaveTiming,
    job: SaveJob | None = None,
) -> str:
    with services.measured("save_checkpoint"):
        held = timing.elapsed
        with reporting_failure(services, order):
            info = durable()
        timing.stretch("writing")
        timing.stalled(held if job is None else job.stall)
        return settle(services, order, info, timing)
