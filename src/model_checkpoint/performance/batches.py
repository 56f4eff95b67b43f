"""Batches: many rows to a writer, one transaction a batch; a row it refuses costs no other row its place.

The writer is handed in and this room knows nothing of SQL. All it must promise: a call writes all of its rows, or
raises and writes none. A refused batch is halved until the rows at fault stand alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from model_checkpoint.errors import CheckpointException, ExceptionType, OptionInvalid
from model_checkpoint.performance.parallel_checkpoints import ParallelCheckpointProcessor

Write = Callable[[Sequence[Any]], object]
_UNREACHABLE = (OSError, MemoryError)  # ConnectionError and TimeoutError too: nothing that a row is to blame for


class BatchWriter(Protocol):
    """Where rows go; each call is one transaction. ``EnhancedDatabaseConnection`` is one."""

    def write_metrics(self, rows: Sequence[Any], /) -> object:
        """Write points of series."""
        ...

    def save_checkpoints(self, rows: Sequence[Any], /) -> object:
        """Write records of checkpoints."""
        ...

    def update_best_flags(self, experiment_id: str, checkpoint_id: str, **flags: bool) -> object:
        """Write which checkpoint of a run is the best by what."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFailure:
    """One row that was not written; ``index`` counts from 0 in the order given."""

    index: int
    row: Any = field(repr=False)
    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What became of the rows of one call.

    Example:
        >>> BatchReport(written=50, seconds=0.5).rate
        100.0
    """

    written: int = 0
    failures: tuple[RowFailure, ...] = ()
    transactions: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every row was written."""
        return not self.failures

    @property
    def rate(self) -> float:
        """Rows written per second."""
        return self.written / self.seconds if self.seconds > 0 else 0.0


class BatchInterrupted(CheckpointException, ConnectionError):
    """The writer could not be reached, or refused row after row; ``report`` says what was written before.

    ``unwritten`` has the spans of row numbers, first and one past the last, that were not: write them again from there.
    A span that ends in None goes to the end of the rows.
    """

    default_type = ExceptionType.STORAGE_ERROR

    def __init__(
        self,
        message: str,
        checkpoint_path: str = "",
        *,
        report: BatchReport | None = None,
        unwritten: Sequence[tuple[int, int | None]] = (),
        inner_exception: BaseException | None = None,
    ) -> None:
        super().__init__(message, checkpoint_path, inner_exception=inner_exception)
        self.report, self.unwritten = report or BatchReport(), tuple(unwritten)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """How far a call has come, in rows; ``total`` is None where the source does not tell."""

    written: int
    failed: int
    total: int | None
    seconds: float

    @property
    def rate(self) -> float:
        """Rows written per second so far."""
        return self.written / self.seconds if self.seconds > 0 else 0.0


Listener = Callable[[BatchProgress], object]


class BatchProcessor:
    """Writes rows in batches of ``batch_size``, up to ``max_workers`` batches at once, in no order between those.

    Example:
        >>> class Table:
        ...     def __init__(self):
        ...         self.rows = []
        ...     def write_metrics(self, rows):
        ...         if any(row < 0 for row in rows):
        ...             raise ValueError("negative")
        ...         self.rows += rows
        >>> table = Table()
        >>> report = BatchProcessor(table, batch_size=4, max_workers=1).batch_save_metrics([1, 2, -3, 4, 5])
        >>> report.written, [failure.index for failure in report.failures], table.rows
        (4, [2], [1, 2, 4, 5])
    """

    def __init__(
        self, writer: object, max_workers: int = 4, batch_size: int = 100, *, max_failures: int = 1000
    ) -> None:
        for name, value in {"max_workers": max_workers, "batch_size": batch_size, "max_failures": max_failures}.items():
            if value < 1:
                raise OptionInvalid(f"batch processor: {name} is {value}, expected 1 or more.")
        self._writer, self._batch_size, self._max_failures = writer, batch_size, max_failures
        self._max_workers = max_workers

    def batch_save_metrics(self, rows: Iterable[Any], *, progress: Listener | None = None) -> BatchReport:
        """Write points of series through the writer's ``write_metrics``."""
        return self.process(rows, self._method("write_metrics"), progress=progress)

    def batch_save_checkpoints(self, rows: Iterable[Any], *, progress: Listener | None = None) -> BatchReport:
        """Write records of checkpoints through the writer's ``save_checkpoints``."""
        return self.process(rows, self._method("save_checkpoints"), progress=progress)

    def batch_update_best_flags(
        self, rows: Iterable[Mapping[str, Any]], *, progress: Listener | None = None
    ) -> BatchReport:
        """Write best flags through the writer's ``update_best_flags``, whose arguments each row has.

        One after the other, in the order given: a flag has one owner, and the last word counts.
        """
        update = self._method("update_best_flags")
        one_by_one = BatchProcessor(self._writer, 1, 1, max_failures=self._max_failures)
        return one_by_one.process(rows, lambda row: update(**row[0]), progress=progress)

    def process(self, rows: Iterable[Any], write: Write, *, progress: Listener | None = None) -> BatchReport:
        """Write ``rows`` by ``write``, which is given some of them at a time; report those it refused.

        Raises:
            BatchInterrupted: the writer cannot be reached, or refused more than ``max_failures`` rows.
        """
        run = _BatchRun(total=len(rows) if isinstance(rows, Sized) else None, max_failures=self._max_failures)
        workers = ParallelCheckpointProcessor(self._max_workers)
        batches = _cut(rows, self._batch_size)
        for outcome in workers.stream(batches, lambda one: _write(one, write, run.stopped), cancel=run.stopped):
            if outcome.value is None:
                raise outcome.error or AssertionError("a batch without an outcome")  # no row's fault: ours
            run.add(outcome.item, outcome.value)
            if progress is not None:
                progress(run.progress())
        return run.finish()

    def _method(self, name: str) -> Callable[..., object]:
        method = getattr(self._writer, name, None)
        if not callable(method):
            raise OptionInvalid(
                f"batch processor: {type(self._writer).__name__} has no method {name}. "
                "Give a writer that has, or call process(rows, write)."
            )
        found: Callable[..., object] = method
        return found


Batch = tuple[int, Sequence[Any]]  # the number of its first row, and the rows


def _cut(rows: Iterable[Any], size: int) -> Iterator[Batch]:
    source, start = iter(rows), 0
    while batch := list(islice(source, size)):
        yield start, batch
        start += len(batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """What became of one batch."""

    written: int
    transactions: int
    failures: Sequence[RowFailure]
    unwritten: Sequence[tuple[int, int]]
    cause: Exception | None  # why it was not tried to the end


def _write(batch: Batch, write: Write, stopped: threading.Event) -> _Written:
    """Write one batch, halving it as long as it is refused."""
    written = transactions = 0
    failures: list[RowFailure] = []
    waiting, cause = [batch], None
    while waiting and cause is None and not stopped.is_set():
        start, rows = waiting.pop()
        transactions += 1
        try:
            write(rows)
            written += len(rows)
        except _UNREACHABLE as error:
            cause = error
            waiting.append((start, rows))
        except Exception as error:  # noqa: BLE001  # a writer refuses a row by any error; it is told in the report
            if len(rows) == 1:
                failures.append(RowFailure(index=start, row=rows[0], error=error))
            else:
                middle = len(rows) // 2
                waiting += [(start + middle, rows[middle:]), (start, rows[:middle])]
    left = [(start, start + len(rows)) for start, rows in reversed(waiting)]
    return _Written(written=written, transactions=transactions, failures=failures, unwritten=left, cause=cause)


class _BatchRun:
    """One call: adds up what became of its batches, and ends it early where there is no point in going on."""

    def __init__(self, *, total: int | None, max_failures: int) -> None:
        self._total, self._max_failures = total, max_failures
        self._start = time.perf_counter()
        self._written = self._transactions = self._taken = 0
        self._failures: list[RowFailure] = []
        self._unwritten: list[tuple[int, int | None]] = []
        self._cause: Exception | None = None
        self.stopped = threading.Event()

    def add(self, batch: Batch, done: _Written) -> None:
        self._taken += len(batch[1])
        self._written += done.written
        self._transactions += done.transactions
        self._failures.extend(done.failures)
        self._unwritten.extend(done.unwritten)
        self._cause = self._cause or done.cause
        if len(self._failures) > self._max_failures:
            self._cause = self._cause or self._failures[-1].error
        if self._cause is not None:
            self.stopped.set()

    def progress(self) -> BatchProgress:
        return BatchProgress(
            written=self._written, failed=len(self._failures), total=self._total, seconds=self._seconds()
        )

    def _seconds(self) -> float:
        return time.perf_counter() - self._start

    def finish(self) -> BatchReport:
        report = BatchReport(
            written=self._written,
            failures=tuple(self._failures),
            transactions=self._transactions,
            seconds=self._seconds(),
        )
        if self._cause is None:
            return report
        rest: list[tuple[int, int | None]] = [] if self._taken == self._total else [(self._taken, None)]
        raise BatchInterrupted(
            f"batch: stopped after {self._written} rows were written and {len(self._failures)} refused: {self._cause} "
            "Mend that, then write the rows of `unwritten` again.",
            report=report,
            unwritten=[*self._unwritten, *rest],
            inner_exception=self._cause,
        ) from self._cause
