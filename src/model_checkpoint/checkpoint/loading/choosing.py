"""Choosing: from an id, "latest", "best_loss" or any metric expression to rows of the catalog, first choice first.

Without the database, the manifests of the root answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from model_checkpoint.checkpoint.catalog.best_choice import all_rows, best_first, criteria_of, find_best, measures_of
from model_checkpoint.checkpoint.catalog.catalog_rows import rows_of_root
from model_checkpoint.checkpoint.catalog.checkpoint_index import AWAY
from model_checkpoint.checkpoint.errors import CheckpointUnknown
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.database.records import Checkpoint
from model_checkpoint.plan import Ranking

LATEST, BEST_METRIC = "latest", "best_metric"


def row_by_id(services: Services, checkpoint_id: str, *, fresh: bool = False) -> Checkpoint:
    """The row of an id, from the cache if it is there; ``fresh`` for who is about to change it."""
    if services.options.caching and not fresh:
        with services.failures.tolerated("cache"):
            known = services.caches.checkpoints.get_metadata(checkpoint_id)
            if known is not None:
                return _present(known.row)
    try:
        services.catalog.require_near()
        row = services.catalog.connection.get_checkpoint(checkpoint_id)
    except AWAY as error:
        services.catalog.note_away(error)
        row = next((one for one in rows_of_root(services.store) if one.id == checkpoint_id), None)
    if row is None:
        raise CheckpointUnknown(
            f"checkpoint {checkpoint_id!r} is not in {services.catalog.connection.database_url}. list_checkpoints() "
            "has those there are; `mckpt reindex` finds those that a lost catalog had."
        )
    services.remember(row)
    return _present(row)


def _present(row: Checkpoint) -> Checkpoint:
    if row.state == "deleted":
        raise CheckpointUnknown(f"checkpoint {row.id!r} was deleted; restore_checkpoint({row.id!r}) may bring it back.")
    return row


def rows_of_run(services: Services, experiment_id: str, wanted: str = LATEST) -> Iterator[Checkpoint]:
    """What answers the question, first choice first: the newest, or the best by a metric."""
    try:
        services.catalog.require_near()
        yield from _rows(services, experiment_id, wanted)
    except AWAY as error:
        services.catalog.note_away(error)
        yield from _ranked(
            services, [one for one in rows_of_root(services.store) if one.experiment_id == experiment_id], wanted
        )


def _rows(services: Services, experiment_id: str, wanted: str) -> Iterator[Checkpoint]:
    connection = services.catalog.connection
    if wanted == LATEST:
        return all_rows(connection, experiment_id)
    newest = connection.latest(experiment_id)
    if newest is None:
        return iter(())
    return find_best(connection, experiment_id, ranking_of(services, newest, wanted))


def ranking_of(services: Services, row: Checkpoint, wanted: str) -> Ranking:
    """What ``wanted`` means: ``best_loss``, ``best_val_loss``, ``best_metric``, or expressions themselves."""
    if wanted != BEST_METRIC:
        return Ranking.parse(wanted, known=[*measures_of(row)])
    found = criteria_of(row, services.options.best_metric).get("metric")  # or by what the newest was saved with
    if found is None:
        names = ", ".join(sorted(row.metrics)) or "none"
        raise CheckpointUnknown(
            f"best_metric: it was not said which metric that is, and the newest checkpoint has {names}. Give "
            "best_metric= to the manager, or ask by the metric itself, e.g. checkpoint_type='max:accuracy'."
        )
    return found


def _ranked(services: Services, rows: list[Checkpoint], wanted: str) -> list[Checkpoint]:
    if wanted == LATEST or not rows:
        return rows
    return best_first(rows, ranking_of(services, rows[0], wanted))
