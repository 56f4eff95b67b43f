"""JSON lines: a log that survives a crash, one line of JSON a record; and a JSON file that is replaced as a whole.

Several processes may append to one log. A line that was torn by a crash is passed over by readers and harms no other.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from model_checkpoint.flushing import flush
from model_checkpoint.hooks.values.plain_data import plain_data


class JsonLines:
    """An append-only log on a disk.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log = JsonLines(Path(folder) / "progress.jsonl")
        ...     log.append({"step": 100, "loss": 0.5})
        ...     list(log)
        [{'step': 100, 'loss': 0.5}]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record and wait until the disk has it; what is no text or number is named in ``left_out``.

        Raises:
            OSError: the disk refused it; no reader takes a part of it for a record.
        """
        line = _line(record)
        fresh = not self.path.exists()
        if fresh:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            _write(descriptor, line if _ends_whole(descriptor) else b"\n" + line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if fresh:
            flush(self.path.parent)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every whole record, oldest first; none when nothing was written yet."""
        return iter(self.since(0)[0])

    def since(self, offset: int) -> tuple[list[dict[str, Any]], int]:
        """The whole records from a byte offset on, and the offset to go on from next time.

        Example:
            >>> JsonLines("/nowhere/progress.jsonl").since(0)
            ([], 0)
        """
        try:
            with open(self.path, "rb") as file:
                file.seek(offset)
                text = file.read()
        except FileNotFoundError:
            return [], offset
        whole = text[: text.rfind(b"\n") + 1]
        return [record for line in whole.split(b"\n") if (record := _parsed(line)) is not None], offset + len(whole)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The record of a line; None for a line that was torn by a crash."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def replace_json(path: str | os.PathLike[str], value: Mapping[str, Any]) -> None:
    r"""Put one JSON value in place of a file, whole or not at all, and wait until the disk has it.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     replace_json(Path(folder) / "summary.json", {"done": 3})
        ...     (Path(folder) / "summary.json").read_text()
        '{\n "done": 3\n}\n'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with open(draft, "x", encoding="utf-8") as file:
            file.write(json.dumps(value, indent=1, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    flush(path.parent)


def _line(record: Mapping[str, Any]) -> bytes:
    kept, left_out = plain_data(record)
    if left_out:
        kept["left_out"] = list(left_out)
    return json.dumps(kept, allow_nan=False).encode() + b"\n"


def _ends_whole(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"


def _write(descriptor: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
