"""The verbs of `mckpt`. Each prints a table for people, or with --json one JSON value for programs.

A checkpoint is named ROOT (its newest), ROOT@100, ROOT@best:val_loss, ROOT@id:3fa9, or by its folder.
Exit codes: 0 all is well, 1 damage or differences were found, 2 the question could not be answered.
"""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from model_checkpoint.cli import retaining
from model_checkpoint.cli.verb_arguments import JsonOption, PartsOption, RefArgument, RootArgument
from model_checkpoint.errors import CheckpointException

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
app.add_typer(retaining.verbs)


def _tell_version(asked: bool) -> None:
    if asked:
        from model_checkpoint import __version__

        print(f"mckpt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Take the options that belong to no verb; the help of the whole is that of the module."""


@app.command()
def ls(root: RootArgument, as_json: JsonOption = False) -> None:
    """List the checkpoints of ROOT, newest first, or the runs in a folder, e.g. `mckpt ls runs/a`, `mckpt ls runs`."""
    from model_checkpoint.cli import render
    from model_checkpoint.cli.runs import find_runs
    from model_checkpoint.engine.root.listing import list_checkpoints
    from model_checkpoint.storage.locate import open_store

    found = list_checkpoints(root)
    runs = [] if found else find_runs(root)
    if runs:
        render.runs(runs, as_json=as_json)
    elif found or open_store(root).trash():
        render.listing(root, found, as_json=as_json)
    else:
        render.fail(
            f"{root}: no committed checkpoint here, nor in a folder right below. Check the path, or save there first "
            "with mc.save; a save that was killed leaves none."
        )


@app.command()
def show(
    ref: RefArgument,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what is in a checkpoint and what a resume would lack, e.g. `mckpt show runs/a@100 --tensors`."""
    from model_checkpoint.cli import render
    from model_checkpoint.engine.root.describe import describe

    render.description(describe(ref), tensors=tensors, as_json=as_json)


@app.command()
def verify(ref: RefArgument, as_json: JsonOption = False) -> None:
    """Read every byte back and compare it with its SHA-256; all of a root, or one, e.g. `mckpt verify runs/a@100`."""
    from model_checkpoint.cli import render
    from model_checkpoint.engine.reading.verify import verify as check
    from model_checkpoint.engine.root.refs import parse_ref

    parsed = parse_ref(ref)
    health = check(parsed.root, progress=not as_json, **parsed.choice)
    if not health:
        render.fail(f"{ref}: no committed checkpoint to verify.")
    render.health(health, as_json=as_json)
    raise typer.Exit(0 if all(h.ok and not h.parity for h in health) else 1)


@app.command()
def repair(
    ref: RefArgument,
    source: Annotated[
        str | None, typer.Option("--source", help="Another root that holds the same checkpoints.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; tell what could be done.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring damaged files back, bit-exactly, or say what is lost, e.g. `mckpt repair runs/a --source s3://mirror/a`."""
    from model_checkpoint.cli import render_repair
    from model_checkpoint.engine.repairing.repair import repair as bring_back

    found = bring_back(ref, source=source, dry_run=dry_run)
    render_repair.repair(found, as_json=as_json)
    raise typer.Exit(0 if found.ok else 1)


@app.command()
def cat(
    ref: RefArgument,
    leaf: Annotated[str, typer.Argument(metavar="LEAF", help="A tensor or plain value, e.g. model.weight.")],
    index: Annotated[str, typer.Option("--index", help='Part of a tensor, e.g. "0:2,-1".')] = "...",
    as_json: JsonOption = False,
) -> None:
    """Print one tensor or plain value, verified, e.g. `mckpt cat runs/a@100 model.weight --index 0:2`."""
    from model_checkpoint.cli import render
    from model_checkpoint.cli.indices import parse_index
    from model_checkpoint.engine.reading.peek import peek

    render.leaf(peek(ref, leaf, parse_index(index)), as_json=as_json)


@app.command()
def export(
    ref: RefArgument,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A file to make, or with --folder a folder.")],
    parts: PartsOption = None,
    folder: Annotated[bool, typer.Option("--folder", help="A folder that from_pretrained opens; one part.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write tensors as safetensors, verified, e.g. `mckpt export runs/a@100 model.safetensors --parts model`."""
    from model_checkpoint.cli import render
    from model_checkpoint.engine.reading.export import export_file, export_folder

    if folder and parts and len(parts) > 1:
        render.fail("--folder takes one part: names inside it must be unique. Export the others apart.")
    done = export_folder(ref, target, part=(parts or ["model"])[0]) if folder else export_file(ref, target, parts=parts)
    render.exported(done, as_json=as_json)


@app.command()
def diff(a: RefArgument, b: RefArgument, parts: PartsOption = None, as_json: JsonOption = False) -> None:
    """Compare two checkpoints, or parts of them, e.g. `mckpt diff runs/a@100 runs/a@200 --parts model`."""
    from model_checkpoint.cli import render
    from model_checkpoint.engine.reading.diff import diff as compare

    found = compare(a, b, parts=parts)
    render.difference(found, as_json=as_json)
    raise typer.Exit(0 if found.same else 1)


@app.command()
def rm(
    refs: Annotated[list[str], typer.Argument(metavar="REF...", help="One checkpoint or several, e.g. ROOT@STEP.")],
    as_json: JsonOption = False,
) -> None:
    """Move checkpoints to the trash, until `mckpt undo` brings them back, e.g. `mckpt rm runs/a@100 runs/a@200`."""
    from model_checkpoint.cli import render
    from model_checkpoint.engine.root.delete import delete

    chosen = [_one_checkpoint(ref) for ref in refs]  # all are there before the first is moved
    removed = [delete(root, name=name) for root, name in dict.fromkeys(chosen)]
    render.removed(removed, as_json=as_json)


def _one_checkpoint(ref: str) -> tuple[str, str]:
    """The root and name of the checkpoint that ``ref`` names; a root alone names none."""
    from model_checkpoint.cli import render
    from model_checkpoint.engine.root.listing import candidates
    from model_checkpoint.engine.root.refs import parse_ref
    from model_checkpoint.storage.locate import open_store

    parsed = parse_ref(ref)
    if not parsed.chosen:
        render.fail(f"{ref}: say which checkpoint to remove, e.g. {ref}@100; `mckpt ls {ref}` lists them.")
    return parsed.root, candidates(open_store(parsed.root), **parsed.choice)[0].name


@app.command()
def undo(ref: RefArgument, as_json: JsonOption = False) -> None:
    """Bring the latest removed checkpoint (of that step or name) back from the trash, e.g. `mckpt undo runs/a@100`."""
    from model_checkpoint.cli import render
    from model_checkpoint.engine.root.delete import undelete
    from model_checkpoint.engine.root.refs import parse_ref

    parsed = parse_ref(ref)
    if parsed.best is not None or parsed.id is not None:
        render.fail(f"{ref}: the trash is searched by step or name only; `mckpt trash {parsed.root}` lists it.")
    render.moved(undelete(parsed.root, step=parsed.step, name=parsed.name), "brought back", as_json=as_json)


@app.command()
def trash(root: RootArgument, as_json: JsonOption = False) -> None:
    """List what `mckpt undo` can bring back, e.g. `mckpt trash runs/a`."""
    from model_checkpoint.cli import render
    from model_checkpoint.engine.root.listing import require_root
    from model_checkpoint.storage.locate import open_store

    store = open_store(root)
    require_root(store)
    render.trashed(store.trash(), as_json=as_json)


@app.command()
def gc(
    root: RootArgument,
    empty_trash: Annotated[bool, typer.Option("--trash", help="Empty the trash now, whatever its age.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing; tell what would be removed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Clear what dead saves left behind and deletions past their grace, e.g. `mckpt gc runs/a --dry-run`."""
    from model_checkpoint.cli import render
    from model_checkpoint.engine.root.recover import collect_garbage
    from model_checkpoint.options import Graces

    found = collect_garbage(root, graces=Graces(trash=0.0) if empty_trash else Graces(), dry_run=dry_run)
    render.swept(found, dry_run=dry_run, as_json=as_json)


@app.command()
def reindex(
    root: RootArgument,
    database: Annotated[
        str, typer.Option("--database", metavar="URL", help="The catalog; default: catalog.db in ROOT.")
    ] = "",
    best_metric: Annotated[
        str, typer.Option("--best-metric", metavar="METRIC", help="What the flag of the best metric is decided by.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Build the catalog of ROOT anew from its manifests, e.g. `mckpt reindex runs/a --database sqlite:///runs.db`."""
    from model_checkpoint.checkpoint.catalog.reindexing import reindex as rebuild
    from model_checkpoint.checkpoint.opening import default_url
    from model_checkpoint.cli import render
    from model_checkpoint.database import open_catalog
    from model_checkpoint.engine.root.listing import require_root
    from model_checkpoint.storage.locate import open_store

    store = open_store(root)
    require_root(store)
    with open_catalog(database or default_url(store)) as catalog:
        report = rebuild(store, catalog, best_metric=best_metric or None)
    render.reindexed(report, as_json=as_json)
    raise typer.Exit(1 if report.unreadable else 0)


def run() -> None:
    """Run the command as a program of its own."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # when the reader of a pipe has seen enough, end as other tools do
    answer()


def answer() -> None:
    """Run the command; our own errors become one message and exit code 2, without a traceback."""
    from model_checkpoint.cli import render

    try:
        app(prog_name="mckpt")
    except (CheckpointException, ValueError) as error:
        render.fail(str(error))
