"""A system whose page cache is always empty."""

import threading

from model_checkpoint.storage.local.syscalls import Syscalls

MIB = 1 << 20


class ColdReads(Syscalls):
    """Notes how each large read goes, and how many bytes it brings; ``before`` is called with its number first."""

    def __init__(self, before=lambda number: None):
        super().__init__()
        self.direct, self.reads, self.nbytes = {}, [], 0
        self._before, self._guard = before, threading.Lock()

    def resident(self, fd, size):
        return 0.0

    def set_direct(self, fd, on):
        super().set_direct(fd, on)
        self.direct[fd] = on

    def preadv(self, fd, buffer, offset):
        if len(buffer) >= MIB:
            with self._guard:
                self.reads.append((self.direct.get(fd, False), offset))
                number = len(self.reads)
            self._before(number)
        got = super().preadv(fd, buffer, offset)
        with self._guard:
            self.nbytes += got
        return got
