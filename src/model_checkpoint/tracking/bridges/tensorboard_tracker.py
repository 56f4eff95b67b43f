"""TensorBoard tracker: an event file of TensorBoard, written without torch and without TensorFlow.

Its own writer of files imports TensorFlow wherever that is installed, so only its records and messages are used.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from model_checkpoint.database.records import Experiment
from model_checkpoint.tracking.bridges.required_package import required_package
from model_checkpoint.tracking.metric_queue import Logged


class TensorboardTracker:
    """A folder for each run, ``<log_dir>/<project>/<name>-<id>``; numbers are 32-bit floats there.

    Args:
        log_dir: What ``tensorboard --logdir`` is to show.
    """

    name = "tensorboard"

    def __init__(self, log_dir: str | os.PathLike[str] = "tensorboard") -> None:
        self._log_dir = Path(log_dir).absolute()  # of this moment: a program may change its folder
        self._records: Any = None

    def require(self) -> None:
        """Import it."""
        for part in ("summary.writer.record_writer", "compat.proto.event_pb2", "compat.proto.summary_pb2"):
            required_package(f"tensorboard.{part}")

    def begin(self, run: Experiment) -> None:
        """Begin a file in the folder of the run; after a restart, one more."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = self._log_dir / quote(run.project_name, safe=" ") / f"{quote(run.name, safe=' ')}-{run.id[:8]}"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{time.time_ns()}"
        self._records = RecordWriter((folder / name).open("xb"))
        self._records.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        self._records.flush()

    def describe(self, run: Experiment) -> None:
        """It is told of metrics alone."""

    def log(self, calls: Sequence[Logged]) -> list[str]:
        """Write metrics with the time they were logged at."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        for at, step, values in calls:
            points = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
            event = Event(wall_time=at, step=step, summary=Summary(value=points))
            self._records.write(event.SerializeToString())
        self._records.flush()
        return []

    def end(self, run: Experiment) -> None:
        """Close the file."""
        self._records.close()
