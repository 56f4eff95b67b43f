"""Job runner: a few threads, a short queue; every job by its id, until it is long over."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from model_checkpoint import forks
from model_checkpoint.api.errors import JobCancelled, NotFoundHere, TooManyAtOnce
from model_checkpoint.errors import CheckpointException

log = logging.getLogger("model_checkpoint.api")

THREADS, MOST_WAITING, MOST_KEPT = 2, 16, 200
_REST = 10.0  # seconds before work that failed or was stopped is begun again by whoever asks for its outcome
_OVER = ("done", "failed", "cancelled")


class ServerJob:
    """One piece of work: how far it is, and whether it is to stop."""

    def __init__(self, kind: str, subject: str, title: str) -> None:
        self.id = uuid.uuid4().hex[:16]
        self.kind, self.subject, self.title = kind, subject, title
        self.state, self.now = "queued", ""
        self.done = self.total = 0
        self.created = time.time()
        self.started: float | None = None
        self.ended: float | None = None
        self.error: str | None = None
        self.result: dict[str, Any] | None = None
        self._stop = threading.Event()

    def advance(self, nbytes: int, now: str = "") -> None:
        """So much more is done; stops here if it is to.

        Raises:
            JobCancelled: Somebody wants it to stop.
        """
        if self._stop.is_set():
            raise JobCancelled(f"job {self.id} was stopped.")
        self.done += nbytes
        self.now = now or self.now

    def stop(self) -> None:
        """Stop at the next step."""
        self._stop.set()

    @property
    def over(self) -> bool:
        """Whether it has ended, however."""
        return self.state in _OVER

    def to_dict(self) -> dict[str, Any]:
        """As it is told."""
        until = self.ended or time.time()
        seconds = until - (self.started or until)
        names = ("id", "kind", "subject", "title", "state", "done", "total", "now", "created", "started", "ended")
        told = {name: getattr(self, name) for name in (*names, "error", "result")}
        return {**told, "rate": self.done / seconds if seconds > 0 else 0.0}


Work = Callable[[ServerJob], dict[str, Any] | None]


class JobRunner:
    """Runs jobs, two at a time; the same work that is under way already is not begun again.

    Example:
        >>> runner = JobRunner()
        >>> job = runner.start("count", "c1", "counting", lambda job: {"sum": 3})
        >>> runner.wait(job.id).result
        {'sum': 3}
        >>> runner.close()
    """

    def __init__(self, tell: Callable[[str], None] = lambda id: None) -> None:
        self._tell = tell
        self._lock = forks.lock()
        self._jobs: dict[str, ServerJob] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._changed = forks.condition()
        self._closed = False
        forks.in_child(self._begin_anew)

    def _begin_anew(self) -> None:
        """In a forked child: the threads stayed behind, and with them what was under way."""
        self._threads = None
        self._jobs = {job.id: job for job in self._jobs.copy().values() if job.over}

    def start(self, kind: str, subject: str, title: str, work: Work) -> ServerJob:
        """Begin work, or return the job that does it already.

        Raises:
            TooManyAtOnce: The queue is full.
        """
        with self._lock:
            same = self.going(kind, subject)
            if same is not None:
                return same
            busy = sum(not job.over for job in self._jobs.values())
            if busy >= MOST_WAITING or self._closed:
                raise TooManyAtOnce(f"{busy} jobs are under way or wait. Stop one, or ask again later.")
            job = ServerJob(kind, subject, title)
            self._jobs[job.id] = job
            self._forget()
            if self._threads is None:
                self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="mckpt-job")
            self._threads.submit(self._run, job, work)
        self._tell(job.id)
        return job

    def _forget(self) -> None:
        over = [job.id for job in self._jobs.values() if job.over]
        for id in over[: max(0, len(self._jobs) - MOST_KEPT)]:
            del self._jobs[id]

    def _run(self, job: ServerJob, work: Work) -> None:
        job.started, job.state = time.time(), "running"
        self._tell(job.id)
        try:
            job.advance(0)
            job.result = work(job)
            state = "done"
        except JobCancelled as error:
            state, job.error = "cancelled", str(error)
        except CheckpointException as error:
            state, job.error = "failed", str(error)
        except Exception as error:  # whatever it was, it is the outcome of the job
            log.exception("job %s (%s): failed", job.id, job.title)
            state, job.error = "failed", f"{type(error).__name__}: see the log of the server."
        job.ended = time.time()
        with self._changed:
            job.state = state
            self._changed.notify_all()
        self._tell(job.id)

    def get(self, job_id: str) -> ServerJob:
        """A job by its id."""
        found = self._jobs.get(job_id)
        if found is None:
            raise NotFoundHere(f"job {job_id!r}: there is none of that id; jobs are forgotten with the server.")
        return found

    def going(self, kind: str, subject: str) -> ServerJob | None:
        """The job of that kind and subject that waits or is under way."""
        last = self._last(kind, subject)
        return None if last is None or last.over else last

    def failed_lately(self, kind: str, subject: str) -> ServerJob | None:
        """The job of that kind and subject that came to nothing a moment ago, so that it is not begun again at once."""
        last = self._last(kind, subject)
        if last is None or last.state not in ("failed", "cancelled") or last.ended is None:
            return None
        return last if time.time() - last.ended < _REST else None

    def _last(self, kind: str, subject: str) -> ServerJob | None:
        same = [job for job in self._jobs.copy().values() if (job.kind, job.subject) == (kind, subject)]
        return same[-1] if same else None

    def jobs(self) -> list[ServerJob]:
        """All that are known, the latest first."""
        return list(reversed(self._jobs.copy().values()))

    def wait(self, job_id: str, timeout: float | None = None) -> ServerJob:
        """Wait for the end of a job."""
        job = self.get(job_id)
        with self._changed:
            self._changed.wait_for(lambda: job.over, timeout)
        return job

    def stop(self, job_id: str) -> ServerJob:
        """Let a job stop at its next step; one that is over stays as it ended."""
        job = self.get(job_id)
        job.stop()
        return job

    def close(self) -> None:
        """Stop all jobs, and wait for them."""
        with self._lock:
            self._closed = True
        for job in self.jobs():
            job.stop()
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
