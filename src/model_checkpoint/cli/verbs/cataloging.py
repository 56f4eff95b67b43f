"""Cataloging: reindex, experiments, metrics, lineage, sql."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from model_checkpoint.cli.exit_codes import ExitCode
from model_checkpoint.cli.verbs.verb_arguments import CatalogArgument, JsonOption, QueryOption, RootArgument
from model_checkpoint.errors import OptionInvalid

if TYPE_CHECKING:
    from model_checkpoint.database.local.catalog_reader import CatalogReader
    from model_checkpoint.database.summed_records import MetricSummary, RunOverview

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's name, id or beginning of an id; by default the latest.")
]


def reindex(
    root: RootArgument,
    database: Annotated[
        str, typer.Option("--database", metavar="URL", help="The catalog; default: catalog.db in ROOT.")
    ] = "",
    best_metric: Annotated[
        str, typer.Option("--best-metric", metavar="METRIC", help="What the flag of the best metric is decided by.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Record nothing; tell what would be.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Build the catalog of ROOT anew from its manifests.

    A lost database loses no checkpoint. Where there is neither a checkpoint nor a catalog, none is made.
    """
    from model_checkpoint.checkpoint.catalog.catalog_place import default_url
    from model_checkpoint.checkpoint.catalog.reindexing import reindex as rebuild
    from model_checkpoint.cli.rendering import catalog_tables
    from model_checkpoint.database.local.opened_writer import open_writer
    from model_checkpoint.database.values.file_urls import SQLITE_FILE, file_of
    from model_checkpoint.engine.root.listing import require_root
    from model_checkpoint.errors import CheckpointNotFound
    from model_checkpoint.storage.locate import open_store

    store = open_store(root)
    require_root(store)
    where = database or default_url(store)
    is_new = where.startswith(SQLITE_FILE) and not os.path.exists(file_of(where))
    if is_new and not store.names() and not store.trash():
        raise CheckpointNotFound(
            f"{root}: no committed checkpoint here, so there is nothing to make a catalog of.", store.url
        )
    to_be_made = dry_run and is_new
    with open_writer("sqlite://" if to_be_made else where, auto_migrate=True) as catalog:
        report = rebuild(
            store, catalog, best_metric=best_metric or None, dry_run=dry_run, progress=not (as_json or dry_run)
        )
        where = where if to_be_made else catalog.database_url
    catalog_tables.reindexed(report, where, as_json=as_json)
    raise typer.Exit(ExitCode.FOUND if report.unreadable else ExitCode.FINE)


def experiments(
    catalog: CatalogArgument,
    query: QueryOption = "",
    limit: Annotated[
        int, typer.Option("--limit", metavar="COUNT", min=1, help="At most so many, the latest first.")
    ] = 50,
    as_json: JsonOption = False,
) -> None:
    """List the runs of a catalog, and how each is doing.

    Alive, hung, dead or finished, each with its evidence, checkpoints and metrics. A search looks at metrics (as they
    were last, or best.NAME), settings, step, n and bytes of checkpoints, status, tag, experiment, host, user, name, id.
    """
    from model_checkpoint.cli.finding.catalogs import reading_catalog
    from model_checkpoint.cli.rendering import catalog_tables
    from model_checkpoint.tracking.reporting.vitals import judge_run

    with reading_catalog(catalog) as database:
        now = database.now()
        every = _searched(query, database) if query else database.overviews()
        shown = every[:limit]
        measured: dict[str, list[MetricSummary]] = {run.experiment.id: [] for run in shown}
        for one in database.summaries(list(measured)):
            measured[one.experiment_id].append(one)
        lines = [(run, judge_run(run.experiment, now), measured[run.experiment.id]) for run in shown]
    catalog_tables.experiments(catalog, lines, total=len(every), searched=bool(query), as_json=as_json)


def _searched(query: str, catalog: CatalogReader) -> list[RunOverview]:
    from model_checkpoint.cli.finding.row_query import chosen_runs

    return chosen_runs(query, catalog)


def metrics(
    catalog: CatalogArgument,
    run: RunArgument = "",
    names: Annotated[
        list[str] | None, typer.Argument(metavar="METRIC...", help="Which to draw; by default all are listed.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the metrics of a run, or draw some of them."""
    from model_checkpoint.cli.finding.catalogs import all_runs, metrics_called, reading_catalog, run_called
    from model_checkpoint.cli.rendering import catalog_tables

    with reading_catalog(catalog) as database:
        one = run_called(all_runs(database), run, catalog)
        summaries = database.summaries(one.id)
        wanted = metrics_called([summary.metric_name for summary in summaries], names or (), one.name)
        buckets = None if as_json else catalog_tables.BUCKETS
        series = [(name, database.series(one.id, name, buckets=buckets)) for name in wanted]
        small = (
            [] if names else [(s.metric_name, database.series(one.id, s.metric_name, buckets=40)) for s in summaries]
        )
    if names:
        catalog_tables.series(one, series, as_json=as_json)
    else:
        catalog_tables.summaries(one, summaries, dict(small), as_json=as_json)


def lineage(catalog: CatalogArgument, run: RunArgument = "", as_json: JsonOption = False) -> None:
    """Show what a run came out of, and what came out of it."""
    from model_checkpoint.cli.finding.catalogs import all_runs, reading_catalog, run_called
    from model_checkpoint.cli.finding.family_tree import family_of
    from model_checkpoint.cli.rendering import catalog_tables

    with reading_catalog(catalog) as database:
        runs = all_runs(database)
        one = run_called(runs, run, catalog)
        family = family_of(one.id, database.edges(), {each.id: each for each in runs}, database.get_checkpoints)
    catalog_tables.lineage(one, family, as_json=as_json)


def sql(
    catalog: CatalogArgument,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One query, in the words of the database.")] = "",
    tables: Annotated[bool, typer.Option("--tables", help="List the tables and their columns instead.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="COUNT", min=1, help="At most so many rows.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Run a read-only query on the catalog."""
    from model_checkpoint.cli.finding.catalogs import catalog_url
    from model_checkpoint.cli.finding.read_only_query import run_query, tables_of
    from model_checkpoint.cli.rendering import catalog_tables

    url = catalog_url(catalog)
    if tables == bool(query):
        raise OptionInvalid("give a query, or --tables to see what can be asked.")
    if tables:
        catalog_tables.tables(tables_of(url), as_json=as_json)
    else:
        catalog_tables.rows(run_query(url, query, limit=limit), as_json=as_json)
