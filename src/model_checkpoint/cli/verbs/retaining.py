"""Retaining: prune, forecast, pin, unpin, tag, note."""

from __future__ import annotations

from typing import Annotated

import typer

from model_checkpoint.cli.verbs.verb_arguments import DatabaseOption, JsonOption, RefArgument, RootArgument
from model_checkpoint.errors import OptionInvalid

KeepOption = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
        metavar="KEEPER",
        help="last:3, best:val_loss:2, pareto:f1,min:ms, every:1000, ladder:2x10,7xday, younger_than:7d, tagged:paper, "
        "pinned or budget:50GB[:hard]; may be given several times.",
    ),
]
GraceOption = Annotated[
    str, typer.Option("--grace", metavar="AGE", help="How long dropped ones can be brought back; 0s frees at once.")
]


def prune(
    root: RootArgument,
    keep: KeepOption = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing; tell what would go, and why.")] = False,
    plan: Annotated[str, typer.Option("--plan", metavar="ID", help="Only if the plan is still that of this id.")] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Finish what a killed prune has left.")] = False,
    damaged: Annotated[bool, typer.Option("--drop-damaged", help="Drop damaged checkpoints too.")] = False,
    grace: GraceOption = "24h",
    database: DatabaseOption = "",
    as_json: JsonOption = False,
) -> None:
    """Drop what no keeper claims, and tell why each stays or goes.

    The newest, what is pinned, and what is damaged stay whatever the keepers say. What goes can be brought back
    (`mckpt restore`) until its grace is over. Ctrl-C leaves whole checkpoints only, and the same
    command goes on; --resume finishes a plan that was killed.
    """
    from model_checkpoint.checkpoint.retention.amounts import as_seconds
    from model_checkpoint.checkpoint.retention.keeper_words import parse_keeper
    from model_checkpoint.checkpoint.retention.prune import prune as do
    from model_checkpoint.cli.catalog_echo import echoing_retention
    from model_checkpoint.cli.rendering import plan_tables

    if resume and keep:
        raise OptionInvalid("--resume finishes a plan as it was made; leave --keep out. Nothing was done.")
    if not resume and not keep:
        raise OptionInvalid("say what to keep, e.g. --keep last:3 --keep best:val_loss --dry-run. Nothing was done.")
    keepers = None if resume else [parse_keeper(text) for text in keep or ()]
    with echoing_retention(root, database, idle=dry_run) as told:
        done = do(
            root,
            keepers,
            dry_run=dry_run,
            plan=plan or None,
            damaged="drop" if damaged else "keep",
            grace=grace,
            progress=not as_json,
        )
        told["plan"] = done.id
    if not done.decisions:
        from model_checkpoint.cli.finding.runs import require_run

        require_run(root, "prune")
    plan_tables.plan(root, done, dry_run=dry_run, at_once=as_seconds(grace) == 0, as_json=as_json)


def forecast(
    root: RootArgument, keep: KeepOption = None, *, grace: GraceOption = "24h", as_json: JsonOption = False
) -> None:
    """Tell when the disk will be full, and what keepers will hold."""
    from model_checkpoint.checkpoint.retention.disk_forecast import forecast as foresee
    from model_checkpoint.checkpoint.retention.keeper_words import parse_keeper
    from model_checkpoint.cli.rendering import plan_tables

    found = foresee(root, [parse_keeper(text) for text in keep or ()], grace=grace)
    if not found.checkpoints:
        from model_checkpoint.cli.finding.runs import require_run

        require_run(root, "forecast")
    plan_tables.forecast(found, as_json=as_json)


def pin(ref: RefArgument, database: DatabaseOption = "", as_json: JsonOption = False) -> None:
    """Protect a checkpoint from retention."""
    from model_checkpoint.cli.catalog_echo import echoing_marks
    from model_checkpoint.cli.rendering import checkpoint_tables
    from model_checkpoint.engine.root import marking

    with echoing_marks(ref, "pin", database):
        info = marking.pin(ref)
    checkpoint_tables.moved(info, "pinned", as_json=as_json)


def unpin(ref: RefArgument, database: DatabaseOption = "", as_json: JsonOption = False) -> None:
    """Take the pin off a checkpoint."""
    from model_checkpoint.cli.catalog_echo import echoing_marks
    from model_checkpoint.cli.rendering import checkpoint_tables
    from model_checkpoint.engine.root import marking

    with echoing_marks(ref, "unpin", database):
        info = marking.unpin(ref)
    checkpoint_tables.moved(info, "no longer pinned", as_json=as_json)


def tag(
    ref: RefArgument,
    tags: Annotated[list[str], typer.Argument(metavar="TAG...", help="Words to find and keep it by.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take them off instead.")] = False,
    database: DatabaseOption = "",
    as_json: JsonOption = False,
) -> None:
    """Give a checkpoint tags, or take them off."""
    from model_checkpoint.cli.catalog_echo import echoing_marks
    from model_checkpoint.cli.rendering import checkpoint_tables
    from model_checkpoint.engine.root import marking

    with echoing_marks(ref, "untag" if remove else "tag", database):
        info = marking.untag(ref, *tags) if remove else marking.tag(ref, *tags)
    words = f"tagged {', '.join(info.tags)}" if info.tags else "has no tags"
    checkpoint_tables.moved(info, words, as_json=as_json)


def note(
    ref: RefArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The remark; an empty one removes it.")],
    database: DatabaseOption = "",
    as_json: JsonOption = False,
) -> None:
    """Write a remark on a checkpoint."""
    from model_checkpoint.cli.catalog_echo import echoing_marks
    from model_checkpoint.cli.rendering import checkpoint_tables
    from model_checkpoint.engine.root import marking

    with echoing_marks(ref, "note", database):
        info = marking.note(ref, text)
    checkpoint_tables.moved(info, "noted" if text else "has no note", as_json=as_json)
