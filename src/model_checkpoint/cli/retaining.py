"""The verbs that keep and let go: prune, forecast, pin, unpin, tag, note."""

from __future__ import annotations

from typing import Annotated

import typer

from model_checkpoint.cli.verb_arguments import JsonOption, RefArgument, RootArgument
from model_checkpoint.errors import OptionInvalid

verbs = typer.Typer()

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


@verbs.command()
def prune(
    root: RootArgument,
    keep: KeepOption = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing; tell what would go, and why.")] = False,
    plan: Annotated[str, typer.Option("--plan", metavar="ID", help="Only if the plan is still that of this id.")] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Finish what a killed prune has left.")] = False,
    damaged: Annotated[bool, typer.Option("--drop-damaged", help="Drop damaged checkpoints too.")] = False,
    grace: GraceOption = "24h",
    as_json: JsonOption = False,
) -> None:
    """Drop what nothing keeps, and tell why, e.g. `mckpt prune runs/a --keep last:3 --keep best:val_loss --dry-run`."""
    from model_checkpoint.checkpoint.retention.keeper_words import parse_keeper
    from model_checkpoint.checkpoint.retention.prune import prune as do
    from model_checkpoint.cli import render_plan

    if resume and keep:
        raise OptionInvalid("--resume finishes a plan as it was made; leave --keep out. Nothing was done.")
    keepers = None if resume else [parse_keeper(text) for text in keep or ()]
    done = do(root, keepers, dry_run=dry_run, plan=plan or None, damaged="drop" if damaged else "keep", grace=grace)
    render_plan.plan(done, dry_run=dry_run, as_json=as_json)


@verbs.command()
def forecast(
    root: RootArgument, keep: KeepOption = None, *, grace: GraceOption = "24h", as_json: JsonOption = False
) -> None:
    """Tell when the disk will be full, and what keepers will hold, e.g. `mckpt forecast runs/a --keep last:3`."""
    from model_checkpoint.checkpoint.retention.disk_forecast import forecast as foresee
    from model_checkpoint.checkpoint.retention.keeper_words import parse_keeper
    from model_checkpoint.cli import render_plan

    render_plan.forecast(foresee(root, [parse_keeper(text) for text in keep or ()], grace=grace), as_json=as_json)


@verbs.command()
def pin(ref: RefArgument, as_json: JsonOption = False) -> None:
    """Protect a checkpoint from retention, e.g. `mckpt pin runs/a@100`."""
    from model_checkpoint.cli import render
    from model_checkpoint.engine.root import marking

    render.moved(marking.pin(ref), "pinned", as_json=as_json)


@verbs.command()
def unpin(ref: RefArgument, as_json: JsonOption = False) -> None:
    """Take the pin off a checkpoint, e.g. `mckpt unpin runs/a@100`."""
    from model_checkpoint.cli import render
    from model_checkpoint.engine.root import marking

    render.moved(marking.unpin(ref), "no longer pinned", as_json=as_json)


@verbs.command()
def tag(
    ref: RefArgument,
    tags: Annotated[list[str], typer.Argument(metavar="TAG...", help="Words to find and keep it by.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take them off instead.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Give a checkpoint tags, or take them off, e.g. `mckpt tag runs/a@100 paper`."""
    from model_checkpoint.cli import render
    from model_checkpoint.engine.root import marking

    info = marking.untag(ref, *tags) if remove else marking.tag(ref, *tags)
    render.moved(info, f"tagged {', '.join(info.tags)}" if info.tags else "has no tags", as_json=as_json)


@verbs.command()
def note(
    ref: RefArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The remark; an empty one removes it.")],
    as_json: JsonOption = False,
) -> None:
    """Write a remark on a checkpoint, e.g. `mckpt note runs/a@100 "before the new data"`."""
    from model_checkpoint.cli import render
    from model_checkpoint.engine.root import marking

    render.moved(marking.note(ref, text), "noted" if text else "has no note", as_json=as_json)
