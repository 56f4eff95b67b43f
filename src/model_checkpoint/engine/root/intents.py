"""Intents: what is about to be deleted together, written down before the first of it goes.

Whoever dies in between leaves the intent, and what is left of it can be finished, or given up by deciding anew.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from model_checkpoint.errors import DiskFull
from model_checkpoint.storage.contract.sidecars import SidecarKeeper, seal, unseal
from model_checkpoint.storage.contract.store import Store

log = logging.getLogger("model_checkpoint.intents")

_PREFIX = "prune."


class IntendedDeletion(msgspec.Struct, frozen=True, array_like=True):
    """One checkpoint to be deleted; the id is empty if its manifest could not be read."""

    name: str
    id: str


class Intent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Checkpoints to be deleted together, by which plan."""

    plan: str
    deletions: tuple[IntendedDeletion, ...] = msgspec.field(name="doomed")  # as it stands in files

    @property
    def key(self) -> str:
        """Where it is kept."""
        return f"{_PREFIX}{self.plan}"


def open_intent(store: Store, intent: Intent) -> bool:
    """Write an intent down, durably; False where there is no room: freeing some must not need any."""
    if not isinstance(store, SidecarKeeper):
        return False
    try:
        store.write_sidecar(intent.key, seal(msgspec.json.encode(intent)))
    except DiskFull as error:
        log.warning(
            "%s: the plan %s is carried out without being written down first: %s", store.url, intent.plan, error
        )
        return False
    return True


def open_intents(store: Store) -> Sequence[Intent]:
    """What was begun and not finished; what is no intent of ours, or damaged, tells nothing and is left alone."""
    if not isinstance(store, SidecarKeeper):
        return ()
    found = [_believed(key, data) for key, data in store.read_sidecars(_PREFIX) if key.startswith(_PREFIX)]
    return [intent for intent in found if intent is not None]


_INTENTS = msgspec.json.Decoder(Intent)  # made once: msgspec crashes where two threads meet a class first


def _believed(key: str, data: object) -> Intent | None:
    line = unseal(data) if isinstance(data, bytes) else None
    try:
        intent = _INTENTS.decode(line) if line is not None else None
    except (msgspec.DecodeError, UnicodeError):
        intent = None
    if intent is None or intent.key != key:
        log.warning("%s: is no plan that can be read; left alone", key)
        return None
    return intent


def close_intents(store: Store, intents: Sequence[Intent]) -> None:
    """Forget intents: they are done, or nobody means them any more."""
    if isinstance(store, SidecarKeeper):
        for intent in intents:
            store.remove_sidecar(intent.key)
