"""Trashing: rm, trash, restore, gc."""

from __future__ import annotations

from typing import Annotated

import typer

from model_checkpoint.cli.verbs.verb_arguments import (
    DatabaseOption,
    JsonOption,
    RefArgument,
    RootArgument,
    complete_ref,
)
from model_checkpoint.errors import OptionInvalid


def rm(
    refs: Annotated[
        list[str],
        typer.Argument(metavar="REF...", help="One checkpoint or several, e.g. ROOT@100.", autocompletion=complete_ref),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing; tell what would go.")] = False,
    database: DatabaseOption = "",
    as_json: JsonOption = False,
) -> None:
    """Move checkpoints to the trash.

    `mckpt restore` brings them back until their grace is over. All that are named must be there, or none is moved. A
    root alone is never taken for its newest checkpoint.
    """
    from model_checkpoint.cli.catalog_echo import echo_removed
    from model_checkpoint.cli.rendering import checkpoint_tables
    from model_checkpoint.engine.root.delete import delete
    from model_checkpoint.engine.root.listing import read_listed, to_info
    from model_checkpoint.storage.locate import open_store

    chosen = list(dict.fromkeys(_one_checkpoint(ref) for ref in refs))  # all are there before the first is moved
    if dry_run:
        stores = [(open_store(root), name) for root, name in chosen]
        found = [to_info(store, one) for store, name in stores if (one := read_listed(store, name)) is not None]
    else:
        found = []
        try:
            for root, name in chosen:
                found.append(delete(root, name=name))
        finally:
            echo_removed([info for info in found if info.id], database)
    checkpoint_tables.removed(found, dry_run=dry_run, as_json=as_json)


def _one_checkpoint(ref: str) -> tuple[str, str]:
    """The root and name of the checkpoint that ``ref`` names; a root alone names none."""
    from model_checkpoint.engine.root.refs import choose, parse_ref

    parsed = parse_ref(ref)
    if not parsed.chosen:
        raise OptionInvalid(f"{ref}: say which checkpoint to remove, e.g. {ref}@100; `mckpt ls {ref}` lists them.")
    return parsed.root, choose(ref)[1][0].name


def restore(ref: RefArgument, database: DatabaseOption = "", as_json: JsonOption = False) -> None:
    """Bring a removed checkpoint back from the trash.

    The latest that was removed, or that of a step (ROOT@100) or name.
    """
    from model_checkpoint.cli.catalog_echo import echoing_restored
    from model_checkpoint.cli.rendering import checkpoint_tables
    from model_checkpoint.engine.root.delete import undelete
    from model_checkpoint.engine.root.refs import parse_ref

    parsed = parse_ref(ref)
    if parsed.best is not None or parsed.id is not None:
        raise OptionInvalid(f"{ref}: the trash is searched by step or name only; `mckpt trash {parsed.root}` lists it.")
    with echoing_restored(parsed.root, database):
        back = undelete(parsed.root, step=parsed.step, name=parsed.name)
    checkpoint_tables.moved(back, "brought back", as_json=as_json)


def trash(root: RootArgument, as_json: JsonOption = False) -> None:
    """List what `mckpt restore` can bring back."""
    from model_checkpoint.cli.rendering import plan_tables
    from model_checkpoint.engine.root.listing import require_root
    from model_checkpoint.storage.locate import open_store

    store = open_store(root)
    require_root(store)
    found = store.trash()
    if not found:
        from model_checkpoint.cli.finding.runs import require_run

        require_run(root, "look for in the trash")
    plan_tables.trashed(root, found, as_json=as_json)


def gc(
    root: RootArgument,
    empty_trash: Annotated[bool, typer.Option("--trash", help="Empty the trash now, whatever its age.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing; tell what would be removed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Clear what dead saves left, and deletions past their grace."""
    from model_checkpoint.cli.rendering import plan_tables
    from model_checkpoint.engine.root.recover import collect_garbage
    from model_checkpoint.options import Graces

    graces = Graces(trash=0.0) if empty_trash else Graces()
    found = collect_garbage(root, graces=graces, dry_run=dry_run, progress=not as_json)
    if not (found.attempts or found.trashed or found.waiting):
        from model_checkpoint.cli.finding.runs import require_run

        require_run(root, "clear up after")
    plan_tables.swept(found, dry_run=dry_run, as_json=as_json)
