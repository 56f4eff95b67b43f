"""JAX service: the coordination service that ``jax.distributed.initialize`` starts keeps the messages of its processes.

JAX ends every process when the one that runs the service is lost, before anybody could report it: then nothing
half-committed is visible, and that is all that can be promised.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
from jax._src import distributed  # the client of the service has no public name

from model_checkpoint.coordination import PATIENCE
from model_checkpoint.distributed.coordinators.bounded import BoundedCalls, NoAnswer, pause
from model_checkpoint.distributed.coordinators.kept_words import KeptWords
from model_checkpoint.distributed.coordinators.ranked import RankedCoordinator
from model_checkpoint.errors import OptionInvalid

_CALL_SECONDS = 5.0
_kept: list[tuple[Any, KeptWords]] = []  # the words of the service that this process has a client of now


class JaxCoordinator(RankedCoordinator):
    """The processes of a multi-host JAX program.

    Example:
        >>> import model_checkpoint as mc
        >>> from model_checkpoint.distributed import JaxCoordinator
        >>> def checkpoint(state, step):  # on every process, after jax.distributed.initialize
        ...     return mc.save("/shared/run", state, step=step, coordinator=JaxCoordinator())
    """

    def __init__(self, *, patience: float = PATIENCE) -> None:
        self._client: Any = distributed.global_state.client
        if self._client is None:
            raise OptionInvalid(
                "JaxCoordinator: JAX knows of no other process. Call jax.distributed.initialize first, or leave "
                "coordinator= out in a program of one process."
            )
        super().__init__(int(jax.process_index()), int(jax.process_count()), patience)
        self._seconds = min(_CALL_SECONDS, patience / 2)
        self._look_seconds = min(_CALL_SECONDS, patience / 8)  # one look after the other adds up to the patience
        self.scope = self._client
        self._calls = {"talk": BoundedCalls("jax"), "beat": BoundedCalls("jax-beat")}
        self._kept = _kept_by(self._client)

    def put(self, key: str, value: bytes) -> None:
        """Set a key of the service; if it does not answer, the others will notice our silence."""
        calls, name = self._calls[_line(key)], _named(key)

        def put() -> None:
            self._client.key_value_set_bytes(name, value, allow_overwrite=True)
            self._tidy(key)

        try:
            calls.run(put, seconds=self._seconds)
        except (NoAnswer, RuntimeError):
            return

    def _tidy(self, key: str) -> None:
        """Forget the keys of earlier calls, which rank 0 does for all."""
        for old in self._kept.note(key):
            if self._rank == 0:
                self._client.key_value_delete(_named(f"{old}/"))

    def collect(self, keys: Sequence[str], until: float) -> dict[str, bytes]:
        """Read keys of the service until all are there."""
        calls, nap = self._calls[_line(keys[0] if keys else "")], 0.0005
        found: dict[str, bytes] = {}
        end = max(until, time.monotonic()) + self._look_seconds
        try:
            while True:
                folders = {key.rpartition("/")[0] for key in keys if key not in found}
                for folder in folders:
                    rows = calls.run(partial(self._read, folder), seconds=end - time.monotonic())
                    found |= {key: rows[key] for key in keys if key in rows}
                if len(found) == len(keys) or time.monotonic() >= until:
                    return found
                nap = pause(nap, until, self.world_size)
        except (NoAnswer, RuntimeError):
            pause(min(1.0, max(0.0, until - time.monotonic())), until)
            return found

    def _read(self, folder: str) -> dict[str, bytes]:
        lead = len(_named(""))
        return {key[lead:]: value for key, value in self._client.key_value_dir_get_bytes(_named(f"{folder}/"))}


def _kept_by(client: Any) -> KeptWords:
    """What is kept by all coordinators of one client."""
    if not _kept or _kept[0][0] is not client:
        _kept[:] = [(client, KeptWords())]
    return _kept[0][1]


def _line(key: str) -> str:
    return "beat" if "/beat/" in key else "talk"


def _named(key: str) -> str:
    return f"model_checkpoint/{key}"
