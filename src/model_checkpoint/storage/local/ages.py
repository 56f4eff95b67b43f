"""Ages: how long ago something happened, by a clock that does not jump where there is one.

Of what this boot of this machine did, its clock since boot tells. Of anything else the clock of the file system tells,
which on a network is the server's and so the same for everybody. A stamp in the future says nothing: the thing is
stamped with the present, so that its grace begins now, instead of being over or lasting for ever.
"""

from __future__ import annotations

import os
from contextlib import suppress

from model_checkpoint.storage.contract.failures import is_refused
from model_checkpoint.storage.local.paths import let_go, log
from model_checkpoint.storage.local.syscalls import Syscalls

_SLACK = 2.0  # a file system may round its stamps


def filesystem_time(calls: Syscalls, folder: str) -> float:
    """What the clock of the file system says, unix time: a folder of ours is stamped and looked at.

    That needs no room. Where this user may not, the clock of this machine is asked.
    """
    fd = calls.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        calls.utime(fd)
        return calls.fstat(fd).st_mtime
    except OSError as error:
        if not is_refused(error):
            raise
        return calls.now().wall / 1e9
    finally:
        let_go(calls, fd)


def age_of(calls: Syscalls, fd: int, stamp: float, *, clock: str) -> float:
    """Seconds since the open file or folder got its ``stamp``, by the clock of the file system of folder ``clock``."""
    passed = filesystem_time(calls, clock) - stamp
    if passed < -_SLACK:
        log.warning("%s: holds something stamped %.0f seconds in the future; its grace begins now", clock, -passed)
        with suppress(OSError):  # not ours to stamp: it is judged again by the next recovery
            calls.utime(fd)
    return max(passed, 0.0)
