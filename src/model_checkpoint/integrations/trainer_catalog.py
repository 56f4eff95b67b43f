"""Trainer catalog: the run of a trainer in a catalog, if one was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.engine.root.listing import read_listed, to_info
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.storage.locate import Root, open_store

if TYPE_CHECKING:  # brings SQLAlchemy
    from model_checkpoint.integrations.loop.run_catalog import RunCatalog


def require_catalog(catalog: Any) -> None:
    """Refuse what is no catalog.

    Example:
        >>> require_catalog(5)
        Traceback (most recent call last):
        model_checkpoint.errors.OptionInvalid: catalog must be the URL of a database, e.g. 'sqlite:///runs.db', ...
    """
    if not (catalog is None or isinstance(catalog, str) or hasattr(catalog, "log_metrics")):
        raise OptionInvalid(
            "catalog must be the URL of a database, e.g. 'sqlite:///runs.db', or an ExperimentTracker, got a "
            f"{type(catalog).__qualname__}"
        )


def open_run_catalog(
    catalog: Any,
    root: Root,
    *,
    resumed: str | None,
    settings: Mapping[str, Any],
    keep: Sequence[Keeper],
    grace: float,
) -> RunCatalog | None:
    """The run in its catalog, going on from the checkpoint ``resumed`` (its folder); None without a catalog.

    Example:
        >>> open_run_catalog(None, "runs/a", resumed=None, settings={}, keep=(), grace=0.0)
    """
    if catalog is None:
        return None
    from model_checkpoint.integrations.loop.run_catalog import RunCatalog

    store = open_store(root)
    found = None if resumed is None else read_listed(store, resumed.rpartition("/")[2])
    info = None if found is None else to_info(store, found)
    return RunCatalog(catalog, root, resumed=info, settings=settings, keep=keep, grace=grace)


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
