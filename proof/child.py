"""Child: one call in a process of its own, forked from a server that has loaded every library already."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

_OURS = ["model_checkpoint.engine.writing.save", "model_checkpoint.engine.reading.load"]
_PEERS = ["bench.measuring.contenders", "safetensors.torch", "torch.distributed.checkpoint", "orbax.checkpoint"]
_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload([*_OURS, *_PEERS])  # one that is not installed is passed over


class ChildDied(Exception):
    """The process ended, or had to be ended, before it told its result; the message says how."""


@contextlib.contextmanager
def result_of(call: Callable[..., Any], *args: Any, seconds: float = 120.0) -> Iterator[Any]:
    """Yield what ``call`` returned in a process that stays alive, doing nothing, until the block ends."""
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_tell, args=(theirs, call, args))
    process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            raise ChildDied(f"no result within {seconds:g} s")
        try:
            kept, result = ours.recv()
        except EOFError:
            process.join()
            raise ChildDied(f"ended with code {process.exitcode}") from None
        if not kept:
            raise RuntimeError(f"{call.__name__}{args}: {result}")
        yield result
    finally:
        ours.close()
        process.kill()
        process.join()


def _tell(pipe: Connection, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Run the call with all it prints thrown away, send what it returned, and wait for the end."""
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(quiet, stream)
    try:
        told = (True, call(*args))
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent must hear of it
        told = (False, f"{type(error).__name__}: {error}")
    pipe.send(told)
    pipe.poll(None)


__all__ = ["ChildDied", "result_of"]
