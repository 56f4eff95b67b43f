"""Restarting: the few places where Lightning would go on otherwise than it would have gone.

Lightning counts on being saved inside a batch or a validation, and makes up for what was cut off there. A run of ours
is saved between two batches, with a validation that was due already done: there is nothing to make up for.
"""

from __future__ import annotations

import signal
import threading
from typing import Any


def go_on_between_batches(trainer: Any) -> None:
    """Let the loop over batches, once its counters are back, go on as if it had never ended."""
    loop = trainer.fit_loop.epoch_loop
    reset = loop.reset

    def reset_once() -> None:
        del loop.reset  # from now on it is the method of its class again
        reset()
        loop.restarting = trainer.fit_loop._restarting = False  # else no schedule that watches a metric acts this epoch
        loop.val_loop.reset_restart_stage()

    loop.reset = reset_once


def hush_sigterm(trainer: Any) -> None:
    """Take Lightning's own handler off: it would end the run at the next batch, with gradients still waiting."""
    if threading.current_thread() is threading.main_thread():
        before = trainer._signal_connector._original_handlers.get(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
