"""Failing calls: calls of the system of which chosen ones fail, made or not."""

import os

from model_checkpoint.storage.local.syscalls import Syscalls, WrappedCalls


def left(folder):
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []


class FailingCalls(WrappedCalls):
    """Calls of which some fail at paths that have a certain word, made or not."""

    def __init__(self):
        super().__init__(Syscalls())
        self.wrong = {}

    def fail(self, name, code, *, at="", made=False):
        self.wrong[name] = (code, at, made)
        return self

    def perform(self, name, action, *args, **kwargs):
        code, at, made = self.wrong.get(name, (0, "", False))
        hit = code and at in " ".join(map(str, (*args, *kwargs.values())))
        done = action(*args, **kwargs) if made or not hit else None
        if hit:
            raise OSError(code, os.strerror(code))
        return done
