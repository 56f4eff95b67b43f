"""Trainer catalog: the run of a trainer in a catalog, if one was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from model_checkpoint.engine.root.listing import read_listed, to_info
from model_checkpoint.integrations.training_options import TrainingOptions
from model_checkpoint.storage.locate import open_store

if TYPE_CHECKING:  # brings SQLAlchemy
    from model_checkpoint.integrations.loop.run_catalog import RunCatalog


def open_run_catalog(
    options: TrainingOptions, *, resumed: str | None, settings: Mapping[str, Any]
) -> RunCatalog | None:
    """The run in its catalog, going on from the checkpoint ``resumed`` (its folder); None without a catalog.

    Example:
        >>> options = TrainingOptions(root="runs/a", every=None, keep=(), catalog=None, grace=0.0, deadline=30.0)
        >>> open_run_catalog(options, resumed=None, settings={})
    """
    if options.catalog is None:
        return None
    from model_checkpoint.integrations.loop.run_catalog import RunCatalog

    store = open_store(options.root)
    found = None if resumed is None else read_listed(store, resumed.rpartition("/")[2])
    info = None if found is None else to_info(store, found)
    return RunCatalog(
        options.catalog, options.root, resumed=info, settings=settings, keep=options.keep, grace=options.grace
    )


def plain_numbers(logs: Mapping[str, Any] | None) -> dict[str, float]:
    """What of a trainer's log is a metric.

    Example:
        >>> plain_numbers({"loss": 0.5, "note": "text", "flag": True})
        {'loss': 0.5}
    """
    return {
        name: float(value)
        for name, value in (logs or {}).items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
