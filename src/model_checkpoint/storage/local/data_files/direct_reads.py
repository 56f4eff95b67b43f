"""Direct reads: bytes of a cold file, straight from the medium, whatever their alignment.

Reading a cold file through the page cache costs several times the processor time of reading around it, and pushes out
what others keep there. A file that is mostly in the cache already is read from it.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import threading

from model_checkpoint.storage.contract.failures import UNSUPPORTED
from model_checkpoint.storage.local.syscalls import Syscalls

ALIGNMENT = 4096
NO_DIRECT = (errno.EINVAL, *UNSUPPORTED)

_WORTHWHILE = 8 << 20  # a smaller file is read before its cache has been asked about
_BOUNCE_BYTES = (4 << 20) + 2 * ALIGNMENT  # one chunk with the pages it shares
_local = threading.local()


def go_direct(calls: Syscalls, fd: int, size: int) -> bool:
    """Turn ``fd`` to direct reads if the file is large, mostly cold, and its file system can; tell whether it did."""
    try:
        if size < _WORTHWHILE or calls.resident(fd, size) > 0.5:
            return False
        calls.set_direct(fd, True)
    except OSError as error:
        if error.errno not in (*NO_DIRECT, errno.ENODEV, errno.ENOMEM):
            raise
        return False  # no maps or no direct I/O here: the page cache always works
    return True


def read_direct(calls: Syscalls, fd: int, offset: int, view: memoryview) -> int:
    """Fill ``view`` from ``offset``; return how many bytes there were before the end of the file."""
    if not (offset | len(view) | _address(view)) % ALIGNMENT:
        return _fill(calls, fd, offset, view)
    room, done = _bounce(), 0
    while done < len(view):
        lead = (offset + done) % ALIGNMENT
        length = min(len(room), -(-(lead + len(view) - done) // ALIGNMENT) * ALIGNMENT)
        found = _fill(calls, fd, offset + done - lead, room[:length]) - lead
        count = min(found, len(view) - done)
        if count > 0:
            ctypes.memmove(_address(view) + done, _address(room) + lead, count)  # lets go of the GIL
            done += count
        if found + lead < length:
            break
    return done


def _fill(calls: Syscalls, fd: int, offset: int, room: memoryview) -> int:
    """Fill aligned memory from an aligned offset; return how much of it the file had."""
    done = 0
    while done < len(room):
        count = calls.preadv(fd, room[done:], offset + done)
        done += count
        if count < ALIGNMENT:
            break  # the end of the file
        done -= done % ALIGNMENT if done < len(room) else 0  # stopped inside a page: read that page again
    return done


def _address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def _bounce() -> memoryview:
    """Aligned memory of this thread, kept: fresh pages cost more than the copy."""
    room: memoryview | None = getattr(_local, "room", None)
    if room is None:
        room = _local.room = memoryview(mmap.mmap(-1, _BOUNCE_BYTES))
    return room
