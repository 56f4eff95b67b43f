"""Request: what a caller asked to save, checked before anything is touched."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from model_checkpoint.engine.common.option_checks import as_step, require
from model_checkpoint.errors import OptionInvalid, UnsupportedType
from model_checkpoint.manifest import pack
from model_checkpoint.options import CheckpointFormat, CompressionLevel, LayoutLimits, ReuseLimits
from model_checkpoint.plan import step_name, told_step
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.locate import Root, open_store

_ID = re.compile(r"[A-Za-z0-9-]{8,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRequest:
    """What is to be saved, apart from the state."""

    name: str
    id: str
    attempt: str
    step: int | None
    metrics: Mapping[str, float]
    metadata: Mapping[str, Any]
    layout: CheckpointFormat
    compression: CompressionLevel
    incremental: bool
    limits: LayoutLimits
    left_out: tuple[str, ...] = ()  # parts there is no time for
    parity: str = ""  # scheme of the parity files to be made behind it
    mirror: Store | None = None  # the second root it is to be copied to
    rank: int = 0  # which of many ranks asks
    given_id: str = ""  # the id, if it was not made here
    stem: str = ""  # what the names of its data files begin with, instead of the rank


def request_save(
    *,
    step: int | None,
    name: str | None,
    metrics: Mapping[str, float] | None,
    metadata: Mapping[str, Any] | None,
    layout: CheckpointFormat = CheckpointFormat.MULTI_SHARD,
    compression: CompressionLevel = CompressionLevel.NONE,
    incremental: bool = False,
    id: str | None = None,
    parity: str | None = None,
    mirror: Root | None = None,
) -> SaveRequest:
    """Check the caller's wishes before anything is touched."""
    require(format=layout, compression=compression, incremental=incremental, parity=parity)
    number = None if step is None else as_step(step)
    if not isinstance(metrics or {}, Mapping) or not isinstance(metadata or {}, Mapping):
        raise UnsupportedType(
            "metrics and metadata must be mappings, e.g. metrics={'val_loss': 0.3}. Nothing was done."
        )
    if name is not None and number is not None and told_step(name) not in (None, number):
        raise OptionInvalid(
            f"name={name!r} is the folder of another step than step={number}; names of steps are believed. "
            "Choose another name, or leave it out."
        )
    if incremental and CheckpointFormat(layout) is CheckpointFormat.SINGLE_FILE:
        raise OptionInvalid("incremental=True repeats whole files, so a SINGLE_FILE would be written anew each time")
    numbers = {key: _as_number(key, value) for key, value in (metrics or {}).items()}
    pack(dict(metadata or {}))
    attempt = uuid.uuid4().hex
    return SaveRequest(
        name=_default_name(number, attempt) if name is None else name,
        id=uuid.uuid4().hex if id is None else _as_id(id),
        attempt=attempt,
        step=number,
        metrics=numbers,
        metadata=dict(metadata or {}),
        layout=CheckpointFormat(layout),
        compression=CompressionLevel(compression),
        incremental=incremental,
        limits=LayoutLimits(file_bytes=ReuseLimits().file_bytes) if incremental else LayoutLimits(),
        parity=parity or "",
        given_id=id or "",
        mirror=None if mirror is None else open_store(mirror),
    )


def _as_id(id: Any) -> str:
    if isinstance(id, str) and _ID.fullmatch(id):
        return id
    raise OptionInvalid(f"id must be a text of 8 to 64 letters, digits and '-', got {id!r}. Nothing was done.")


def refuse_own_mirror(store: Store, order: SaveRequest) -> None:
    """Raise :class:`OptionInvalid` for a mirror that is the root itself."""
    if order.mirror is not None and order.mirror.url == store.url:
        raise OptionInvalid(f"mirror={store.url!r} is the root itself; name another one. Nothing was done.")


def _default_name(step: int | None, attempt: str) -> str:
    return f"save-{datetime.now(UTC):%Y%m%d-%H%M%S}-{attempt[:8]}" if step is None else step_name(step)


def _as_number(key: Any, value: Any) -> float | int:
    """Accept numbers and what turns into one without loss (arrays and tensors of one element)."""
    if not isinstance(key, str):
        raise UnsupportedType(f"the name of a metric must be a string, got {key!r}. Nothing was done.")
    number = value
    if hasattr(value, "item"):
        with suppress(TypeError, ValueError, RuntimeError):  # what libraries raise for more than one element
            number = value.item()
    if isinstance(number, (bool, int, float)):
        return number
    raise UnsupportedType(
        f"metric {key!r} must be a number, got {type(value).__qualname__}. Put other data into metadata=."
    )
