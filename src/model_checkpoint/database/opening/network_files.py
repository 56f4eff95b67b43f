"""Network files: whether a folder lies on a file system that several machines share.

SQLite's write-ahead log keeps its index in shared memory, which machines do not share; and their locks cannot be
trusted to be seen everywhere at once.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

# f_type of statfs(2); FUSE counts, since what is behind it cannot be told (sshfs, s3fs, virtiofs)
NETWORK_KINDS = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB2",
    0x65735546: "FUSE",
    0x01021997: "9P",
    0x5346414F: "AFS",
    0x00C36400: "Ceph",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x01161970: "GFS2",
    0x7461636F: "OCFS2",
    0x19830326: "BeeGFS",
    0x786F4256: "vboxsf",
    0x73757245: "Coda",
}
_STATFS_WORDS = 64  # larger than any struct statfs; its first word is f_type


def network_kind(folder: Path) -> str:
    """The name of the network file system ``folder`` lies on; empty for a local one, or where nobody can tell.

    Example:
        >>> network_kind(Path("/proc"))
        ''
    """
    return NETWORK_KINDS.get(_file_system(folder), "")


def _file_system(folder: Path) -> int:
    if not sys.platform.startswith("linux"):
        return 0
    buffer = (ctypes.c_long * _STATFS_WORDS)()
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(folder), ctypes.byref(buffer)) != 0:
        return 0
    return int(buffer[0]) & 0xFFFFFFFF
