"""Retry policy: which failures are worth another try, how often, and after how long."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass

from model_checkpoint.distributed.calling.call_options import Duration, as_seconds
from model_checkpoint.errors import OptionInvalid

_PASSING = (
    *(errno.EIO, errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ESTALE, errno.ETIMEDOUT, errno.ENOLCK, errno.EREMOTEIO),
    *(errno.ECONNRESET, errno.ECONNABORTED, errno.ECONNREFUSED, errno.EPIPE, errno.EHOSTDOWN, errno.EHOSTUNREACH),
    *(errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and when to try again.

    Attributes:
        max_retries: Tries after the first.
        initial_delay: Seconds, or a timedelta, before the second try.
        max_delay: The longest wait.
        backoff_factor: How much longer each wait is than the one before.
        retryable_exceptions: What is tried again; if empty, failures of the medium or the network that may pass (no
            missing file, no full disk, no refusal), and timeouts.

    Example:
        >>> list(RetryPolicy(max_retries=4, initial_delay=1, max_delay=5).delays())
        [1.0, 2.0, 4.0, 5.0]
    """

    max_retries: int = 3
    initial_delay: Duration = 1.0
    max_delay: Duration = 30.0
    backoff_factor: float = 2.0
    retryable_exceptions: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.max_retries, bool) or not isinstance(self.max_retries, int) or self.max_retries < 0:
            raise OptionInvalid(f"max_retries={self.max_retries!r}: expected 0 or more. Nothing was done.")
        as_seconds(self.initial_delay, "initial_delay")
        as_seconds(self.max_delay, "max_delay")
        if not self.backoff_factor >= 1:
            raise OptionInvalid(f"backoff_factor={self.backoff_factor!r}: expected 1 or more. Nothing was done.")

    def delays(self) -> Iterator[float]:
        """Seconds to wait before each further try."""
        delay, most = as_seconds(self.initial_delay, "initial_delay"), as_seconds(self.max_delay, "max_delay")
        for _ in range(self.max_retries):
            yield min(delay, most)
            delay *= self.backoff_factor

    def is_retryable(self, error: BaseException) -> bool:
        """Whether another try may help.

        Example:
            >>> policy = RetryPolicy()
            >>> policy.is_retryable(OSError(5, "I/O error")), policy.is_retryable(FileNotFoundError(2, "gone"))
            (True, False)
        """
        if self.retryable_exceptions:
            return isinstance(error, tuple(self.retryable_exceptions))
        return isinstance(error, OSError) and (isinstance(error, TimeoutError) or error.errno in _PASSING)
