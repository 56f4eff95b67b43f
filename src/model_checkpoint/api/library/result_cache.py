"""Result cache: small documents on disk, by digest: what took long to compute is computed once, whoever asks again.

A document appears whole or not at all; one that cannot be read is one that is not there. The oldest make room.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
from typing import Any

log = logging.getLogger("model_checkpoint.api")

MOST_BYTES = 256 << 20
_SWEEP_EVERY = 20  # documents


class ResultCache:
    """Documents in one folder.

    Example:
        >>> kept = ResultCache(tempfile.mkdtemp())
        >>> kept.put("stats", "9f2c", {"mean": 0.5})
        >>> kept.get("stats", "9f2c"), kept.get("stats", "0000")
        ({'mean': 0.5}, None)
    """

    def __init__(self, folder: str, *, most_bytes: int = MOST_BYTES) -> None:
        self._folder, self._most, self._written = folder, most_bytes, 0

    def get(self, kind: str, key: str) -> Any:
        """The document, or None."""
        try:
            with open(self._path(kind, key), "rb") as file:
                return json.loads(file.read())
        except (OSError, ValueError):
            return None

    def put(self, kind: str, key: str, document: Any) -> None:
        """Keep a document; a folder that cannot be written to keeps nothing, which costs time and is logged."""
        data = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            handle, path = tempfile.mkstemp(dir=self._folder, prefix=".new-")
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(path, self._path(kind, key))
        except OSError as error:
            log.warning("%s: nothing can be kept there: %s", self._folder, error)
            return
        self._written += 1
        if self._written % _SWEEP_EVERY == 1:
            self._sweep()

    def _path(self, kind: str, key: str) -> str:
        digest = hashlib.sha256(f"{kind}\0{key}".encode()).hexdigest()
        return f"{self._folder}/{digest}.json"

    def _sweep(self) -> None:
        """Remove the oldest until all fit, and what a killed server left half written."""
        found = []
        for entry in os.scandir(self._folder):
            stat = entry.stat(follow_symlinks=False)
            if entry.name.startswith(".new-") and time.time() - stat.st_mtime > 3600.0:
                os.unlink(entry.path)
            elif entry.name.endswith(".json"):
                found.append((stat.st_mtime, stat.st_size, entry.path))
        room = self._most
        for _, size, path in sorted(found, reverse=True):
            room -= size
            if room < 0:
                os.unlink(path)
