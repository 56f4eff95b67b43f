"""Fault tolerance: try again, stop waiting, clear up.

Only calls of a storage are tried again, each on the rank that makes it. A step that many ranks take together is taken
once: a rank that took it again would wait for others who are elsewhere by then.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from model_checkpoint.distributed.calling.call_options import Duration, as_seconds
from model_checkpoint.distributed.calling.error_details import CallLogger
from model_checkpoint.distributed.errors import CallTimeout
from model_checkpoint.distributed.retrying.retry_policy import RetryPolicy
from model_checkpoint.distributed.storing.storage_roots import Storage, store_of
from model_checkpoint.options import Graces

T = TypeVar("T")

_SPREAD = 0.25  # of each wait is left to chance, so that many ranks do not come back at once


class FaultToleranceHandler:
    """What is done when a storage fails; ``wait`` is how it waits.

    Example:
        >>> waits = []
        >>> handler = FaultToleranceHandler("memory://doc-faults", RetryPolicy(max_retries=1), wait=waits.append)
        >>> failures = [OSError(5, "I/O error")]
        >>> def read():
        ...     if failures:
        ...         raise failures.pop()
        ...     return b"bytes"
        >>> handler.execute_with_retry(read), len(waits)
        (b'bytes', 1)
    """

    def __init__(
        self,
        storage: Storage,
        retry_policy: RetryPolicy | None = None,
        logger: CallLogger | None = None,
        *,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._store = store_of(storage)
        self.retry_policy = RetryPolicy() if retry_policy is None else retry_policy
        self._logger: CallLogger = logging.getLogger("model_checkpoint.distributed") if logger is None else logger
        self._wait, self._chance = wait, random.Random()  # its own: the program's generators are not ours to turn

    def execute_with_retry(self, operation: Callable[[], T]) -> T:
        """Call ``operation``, again if it fails in a way that may pass; raise its last failure."""
        for delay in self.retry_policy.delays():
            try:
                return operation()
            except Exception as error:
                if not self.retry_policy.is_retryable(error):
                    raise
                seconds = delay * (1 - _SPREAD * self._chance.random())
                self._logger.warning("Storage failed (%s), trying again in %.2f s", error, seconds)
            self._wait(seconds)
        return operation()

    def execute_with_timeout(self, operation: Callable[[], T], timeout: Duration) -> T:
        """Call ``operation`` and wait for it no longer than ``timeout``; one that hangs is left behind."""
        seconds, answer = as_seconds(timeout, "timeout"), Future[T]()

        def run() -> None:
            try:
                answer.set_result(operation())
            except BaseException as error:  # noqa: BLE001  # carried to the caller
                answer.set_exception(error)

        threading.Thread(target=run, name="mckpt-timed", daemon=True).start()
        try:
            return answer.result(seconds)
        except TimeoutError as error:
            if answer.done():
                raise
            raise CallTimeout(
                f"the storage did not answer within {seconds:g} s. Look at it, or give it a longer timeout."
            ) from error

    def rollback(self, path: str) -> None:
        """Clear away what a failed save of that prefix left; a committed checkpoint is never touched. Never raises."""
        try:
            if self._store.has(path):
                self._logger.info("Nothing to roll back: %s is a whole checkpoint", path)
            elif self._store.exists():
                self._store.sweep(Graces())
        except Exception as error:  # noqa: BLE001  # the failure of the save is the one to tell
            self._logger.warning("Leavings of %s stay until the next recovery: %s", path, error)
