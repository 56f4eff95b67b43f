"""Many at once: the same work in threads or in processes, all of them under way together."""

import os
import threading


def in_threads(work, values):
    """``work(value)`` for each of ``values``, in a thread of its own; the first error is raised when all have ended."""
    failed = []

    def one(value):
        try:
            work(value)
        except BaseException as error:  # noqa: BLE001  # raised below
            failed.append(error)

    threads = [threading.Thread(target=one, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def in_children(count, work):
    """``work(number)`` in ``count`` forked children; the exit code of each, 0 where it succeeded."""
    return [_ended(child) for child in [_forked(work, number) for number in range(count)]]


def in_child(work, *values):
    """``work(*values)`` in a forked child; its exit code, 0 where it succeeded."""
    return _ended(_forked(work, *values))


def _forked(work, *values):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(*values)
            code = 0
        finally:
            os._exit(code)
    return child


def _ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
