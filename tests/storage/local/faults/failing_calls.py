"""Failing calls: calls of the system of which chosen ones fail, made or not."""

import os

from model_checkpoint.storage.local.syscalls import Syscalls


def left(folder):
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []


class FailingCalls(Syscalls):
    """Calls of which some fail at paths that have a certain word, made or not."""

    def __init__(self):
        super().__init__()
        self.wrong = {}

    def fail(self, name, code, *, at="", made=False):
        self.wrong[name] = (code, at, made)

    def _call(self, name, *args, **kwargs):
        code, at, made = self.wrong.get(name, (0, "", False))
        hit = code and at in " ".join(map(str, (*args, *kwargs.values())))
        done = getattr(super(), name)(*args, **kwargs) if made or not hit else None
        if hit:
            raise OSError(code, os.strerror(code))
        return done

    def rename(self, *args, **kwargs):
        return self._call("rename", *args, **kwargs)

    def unlink(self, *args, **kwargs):
        return self._call("unlink", *args, **kwargs)

    def mkdir(self, *args, **kwargs):
        return self._call("mkdir", *args, **kwargs)

    def fsync_dir(self, *args, **kwargs):
        return self._call("fsync_dir", *args, **kwargs)

    def lstat(self, *args, **kwargs):
        return self._call("lstat", *args, **kwargs)

    def link(self, *args, **kwargs):
        return self._call("link", *args, **kwargs)

    def open(self, *args, **kwargs):
        return self._call("open", *args, **kwargs)

    def utime(self, *args, **kwargs):
        return self._call("utime", *args, **kwargs)

    def flock(self, *args, **kwargs):
        return self._call("flock", *args, **kwargs)

    def resident(self, *args, **kwargs):
        return self._call("resident", *args, **kwargs)
