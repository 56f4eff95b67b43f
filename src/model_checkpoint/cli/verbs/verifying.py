"""Verifying: verify, repair, doctor, bench."""

from __future__ import annotations

from typing import Annotated

import typer

from model_checkpoint.cli.exit_codes import ExitCode
from model_checkpoint.cli.verbs.verb_arguments import DatabaseOption, JsonOption, RefArgument


def verify(ref: RefArgument, as_json: JsonOption = False) -> None:
    """Read every byte back and compare it with its SHA-256.

    All checkpoints of a root, or one. Leaves with 1 and the address of each damage if there is any.
    """
    from model_checkpoint.cli.rendering import trust_tables
    from model_checkpoint.engine.reading.verify import verify as check
    from model_checkpoint.engine.root.refs import parse_ref

    parsed = parse_ref(ref)
    health = check(parsed.root, progress=not as_json, **parsed.choice)
    if not health:
        from model_checkpoint.cli.finding.runs import nothing_in

        raise nothing_in(ref, "verify")
    trust_tables.health(ref, health, as_json=as_json)
    raise typer.Exit(ExitCode.FINE if all(h.ok and not h.parity for h in health) else ExitCode.FOUND)


def repair(
    ref: RefArgument,
    source: Annotated[
        str | None, typer.Option("--source", metavar="ROOT", help="Another root that holds the same checkpoints.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; tell what could be done.")] = False,
    database: DatabaseOption = "",
    as_json: JsonOption = False,
) -> None:
    """Bring damaged files back, bit-exactly, or say what is lost.

    From equal chunks of other checkpoints, parity files, a mirror, or --source. Leaves with 1 if something is lost.
    """
    from model_checkpoint.cli.catalog_echo import echo_repair
    from model_checkpoint.cli.rendering import trust_tables
    from model_checkpoint.engine.repairing.repair import repair as bring_back

    found = bring_back(ref, source=source, dry_run=dry_run, progress=not as_json)
    if not found.examined and found.ok:
        from model_checkpoint.cli.finding.runs import nothing_in

        raise nothing_in(ref, "repair")
    if not dry_run:
        echo_repair(found, database)
    trust_tables.repair(found, as_json=as_json)
    raise typer.Exit(ExitCode.FINE if found.ok else ExitCode.FOUND)


def doctor(
    root: Annotated[str, typer.Argument(metavar="ROOT", help="The root to look at; without one, the machine.")] = "",
    database: DatabaseOption = "",
    as_json: JsonOption = False,
) -> None:
    """Check a root and this machine, and say the cures.

    File system, room, leftovers, clock, permissions, compiled parts, torch and CUDA, the catalog and its schema. Only
    looks; leaves with 1 if something is wrong.
    """
    from model_checkpoint.cli.checkup.diagnosis import Grade
    from model_checkpoint.cli.checkup.examine import examine
    from model_checkpoint.cli.rendering import trust_tables
    from model_checkpoint.cli.rendering.progress_line import progress_line

    with progress_line("looking", quiet=as_json):
        found = examine(root, database)
    trust_tables.diagnoses(found, as_json=as_json)
    raise typer.Exit(ExitCode.FOUND if any(one.grade is Grade.BAD for one in found) else ExitCode.FINE)


def bench(
    root: Annotated[str, typer.Argument(metavar="ROOT", help="The folder or URL to try; it need not be there yet.")],
    size: Annotated[str, typer.Option("--size", metavar="BYTES", help="How much to save, e.g. 256MB.")] = "256MB",
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="COUNT", min=1, max=100, help="How often; the median is told.")
    ] = 3,
    as_json: JsonOption = False,
) -> None:
    """Measure saving, loading and verifying in a place.

    In a folder of its own in ROOT, which is gone afterwards, with random numbers: bytes a second of a plain write, a
    save, a load and a verification, and how long save_async holds the training up.
    """
    from model_checkpoint.checkpoint.retention.amounts import as_bytes
    from model_checkpoint.cli.checkup.trial import measure
    from model_checkpoint.cli.rendering import trust_tables
    from model_checkpoint.cli.rendering.progress_line import progress_line

    with progress_line("measuring", quiet=as_json) as tell:
        found = measure(root, as_bytes(size), rounds=rounds, tell=tell)
    trust_tables.measured(found, as_json=as_json)
