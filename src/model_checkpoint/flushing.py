"""Flushing: what a path names is on the medium before anybody relies on it.

The stores make their own calls (``storage.local.syscalls``), so that tests can fail each; this is for all else.
"""

from __future__ import annotations

import os


def flush(path: str | os.PathLike[str]) -> None:
    """Bring the bytes of a file, or the names in a folder, to the medium.

    Raises:
        OSError: the medium refused; what was to be flushed may be lost, and to flush again would not tell.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     flush(folder)
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
