"""Inspecting: ls, show, cat, diff."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from model_checkpoint.cli.exit_codes import ExitCode
from model_checkpoint.cli.verbs.verb_arguments import (
    DatabaseOption,
    JsonOption,
    PartsOption,
    QueryOption,
    RefArgument,
    RootArgument,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from model_checkpoint.engine.common.info import CheckpointInfo
    from model_checkpoint.engine.reading.figures.number_figures import NumberFigures
    from model_checkpoint.engine.root.describe import Description
    from model_checkpoint.engine.root.run_position import RunPosition


def ls(root: RootArgument, query: QueryOption = "", database: DatabaseOption = "", as_json: JsonOption = False) -> None:
    """List the checkpoints of ROOT, or the runs in a folder.

    Newest first, with metrics, the best of each marked. A search looks at metrics, metadata, step, size, name, id, tag
    and health (committed, unusable, incomplete). With --json also why each is kept, if a catalog knows.
    """
    from model_checkpoint.cli.rendering import checkpoint_tables
    from model_checkpoint.engine.root.listing import list_checkpoints
    from model_checkpoint.errors import CheckpointNotFound
    from model_checkpoint.storage.locate import open_store

    found = list_checkpoints(root)
    if query and found:
        from model_checkpoint.cli.finding.row_query import checkpoint_row, chosen

        found = chosen(query, found, [checkpoint_row(info) for info in found])
        _list(root, found, database, as_json=as_json, searched=True)
        return
    if found or open_store(root).trash():
        _list(root, found, database, as_json=as_json)
        return
    from model_checkpoint.cli.finding.runs import find_runs

    runs = find_runs(root)
    if not runs:
        raise CheckpointNotFound(
            f"{root}: no committed checkpoint here, nor in a folder right below. Check the path, or save there first "
            "with mc.save; a save that was killed leaves none."
        )
    checkpoint_tables.runs(runs, as_json=as_json)


def _list(root: str, found: Sequence[CheckpointInfo], database: str, *, as_json: bool, searched: bool = False) -> None:
    from model_checkpoint.cli.rendering import checkpoint_tables

    if not as_json:
        checkpoint_tables.listing(root, found, searched=searched)
        return
    from model_checkpoint.cli.finding.catalog_reasons import catalog_reasons

    checkpoint_tables.listing_json(found, catalog_reasons(root, found, database))


def show(  # noqa: PLR0917  # options of a command line
    ref: RefArgument,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor, with how its values lie.")] = False,
    values: Annotated[
        bool, typer.Option("--values/--no-values", help="With --tensors: read the values, or only list names.")
    ] = True,
    parts: PartsOption = None,
    database: DatabaseOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show what is in a checkpoint, and what a resume would lack.

    Parts and sizes, metrics over the checkpoints of the root, the run's place in its data, the ranks that wrote it and
    how tensors lie on them. With --tensors every tensor with its histogram, which reads all of their bytes. Of what a
    storage backend wrote, which backend that was and its files. Why it is kept, if a catalog knows.
    """
    from model_checkpoint.cli.finding.catalog_reasons import catalog_reasons
    from model_checkpoint.cli.rendering import checkpoint_tables, tensor_tables
    from model_checkpoint.engine.root.describe import describe
    from model_checkpoint.engine.root.refs import parse_ref
    from model_checkpoint.errors import WrongReference
    from model_checkpoint.plan import matcher

    told = describe(ref)
    reasons = catalog_reasons(parse_ref(ref).root, [told.info], database).get(told.info.id)
    place = _place(ref, told)
    wanted = matcher(parts)
    lines = [line for line in told.tensors if wanted(line.name)]
    if parts and not lines and not any(wanted(part.name) for part in told.parts):
        there = ", ".join(part.name for part in told.parts) or "none"
        raise WrongReference(f"{told.info.path}: no tensor or part fits {', '.join(parts)}; its parts are {there}.")
    figures = _figures(ref, parts, quiet=as_json) if tensors and values and lines else {}
    if as_json:
        checkpoint_tables.description_json(told, place, reasons, lines, figures)
        return
    from model_checkpoint.cli.finding.metric_history import metric_histories

    checkpoint_tables.description(told, place, metric_histories(told.info))
    if tensors:
        tensor_tables.tensors(lines, figures, read=values)
    if reasons is not None:
        checkpoint_tables.kept_by(reasons)
    checkpoint_tables.lacking(told)


def _place(ref: str, told: Description) -> RunPosition | None:
    """Where the run was in its data, if a run saved it: to read that brings NumPy."""
    if told.backend or all(part.name != "run" for part in told.parts):
        return None
    from model_checkpoint.engine.root.run_position import run_position

    return run_position(ref)


def _figures(ref: str, parts: list[str] | None, *, quiet: bool) -> dict[str, NumberFigures | None]:
    from model_checkpoint.cli.finding.value_spread import value_spreads

    return value_spreads(ref, parts=parts, progress=not quiet)


def cat(
    ref: RefArgument,
    leaf: Annotated[str, typer.Argument(metavar="LEAF", help="A tensor or plain value, e.g. model.weight.")],
    index: Annotated[str, typer.Option("--index", metavar="INDEX", help='Part of a tensor, e.g. "0:2,-1".')] = "...",
    as_json: JsonOption = False,
) -> None:
    """Print one tensor, part of one, or a plain value, verified."""
    from model_checkpoint.cli.finding.indices import parse_index
    from model_checkpoint.cli.rendering import tensor_tables
    from model_checkpoint.engine.reading.peek import peek

    tensor_tables.leaf(peek(ref, leaf, parse_index(index)), as_json=as_json)


def diff(a: RefArgument, b: RefArgument, parts: PartsOption = None, as_json: JsonOption = False) -> None:
    """Compare two checkpoints, tensor by tensor.

    What moved most comes first. Leaves with 1 if there is any difference.
    """
    from model_checkpoint.cli.rendering import tensor_tables
    from model_checkpoint.engine.reading.diff import diff as compare

    found = compare(a, b, parts=parts, progress=not as_json)
    tensor_tables.difference(found, as_json=as_json)
    raise typer.Exit(ExitCode.FINE if found.same else ExitCode.FOUND)
