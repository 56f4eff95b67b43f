"""Clocks: this machine and others, some time later, with clocks that somebody has set."""

import os

import msgspec

from model_checkpoint.storage.local.syscalls import Syscalls


class Later(Syscalls):
    """This machine ``seconds`` later; ``wall`` is how far somebody has set its wall clock besides.

    With ``boot`` it is another machine, or this one after a restart. ``medium`` is how far the clock of the file system
    has gone.
    """

    def __init__(self, seconds: float, *, wall: float = 0.0, boot: str = "", medium: float = 0.0) -> None:
        super().__init__()
        self.seconds, self.wall, self.boot, self.medium = seconds, wall, boot, medium

    def now(self):
        now = super().now()
        return msgspec.structs.replace(
            now,
            boot=self.boot or now.boot,
            since_boot=now.since_boot + self.seconds,
            wall=now.wall + int((self.seconds + self.wall) * 1e9),
        )

    def utime(self, fd):
        super().utime(fd)
        if self.medium:
            stamp = os.fstat(fd).st_mtime + self.medium
            os.utime(fd, (stamp, stamp))
