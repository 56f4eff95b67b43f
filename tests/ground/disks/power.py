"""Power: a small file system of its own that can lose its power, for tests that must survive it (Linux, root).

The file system lives in a loop-mounted file. ``cut`` shuts it down with all its unflushed state, through the ioctl that
ext4 and XFS have; mounting it again is what happens after the lights come back.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

_SHUTDOWN = 0x8004587D
_WITHOUT_LOG_FLUSH = 2
_FLAGS = {"ext4": ("-q", "-F"), "xfs": ("-q", "-f")}


class PowerUnavailable(RuntimeError):
    """This machine cannot mount such a file system; the message says why."""


class Disk:
    """A loop-mounted file system of kind ``ext4`` or ``xfs`` under ``folder``; ``flags`` go to its mkfs."""

    def __init__(self, folder: Path, kind: str, *, nbytes: int = 320 << 20, flags: Sequence[str] = ()) -> None:
        if shutil.which(f"mkfs.{kind}") is None:
            raise PowerUnavailable(f"mkfs.{kind} is not installed (apt-get install e2fsprogs xfsprogs)")
        if os.geteuid() != 0:
            raise PowerUnavailable("mounting a loop file needs root")
        self.image, self.mount_point = folder / f"{kind}.img", folder / kind
        self.mount_point.mkdir()
        with self.image.open("wb") as image:
            image.truncate(nbytes)
        _run(f"mkfs.{kind}", *_FLAGS[kind], *flags, str(self.image))
        self.mount()

    def mount(self) -> None:
        """Bring it back."""
        _run("mount", "-o", "loop", str(self.image), str(self.mount_point))

    def unmount(self) -> None:
        """Take it away in order."""
        _run("umount", str(self.mount_point))

    def cut(self) -> None:
        """Pull the plug: all that is not flushed is gone."""
        fd = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG_FLUSH))
        finally:
            os.close(fd)


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise PowerUnavailable(f"{' '.join(command)}: {done.stderr.strip()}")
