"""Arguments: what several verbs take, said once, and how a shell completes it."""

from __future__ import annotations

from typing import Annotated

import typer


def complete_ref(incomplete: str) -> list[str]:
    """The checkpoints of a root, behind its ``@``.

    Example:
        >>> complete_ref("runs/a"), complete_ref("no/such/root@")
        ([], [])
    """
    from model_checkpoint.errors import CheckpointException
    from model_checkpoint.plan import told_step
    from model_checkpoint.storage.locate import open_store

    root, mark, begun = incomplete.rpartition("@")
    if not mark or not root:
        return []  # files are what shells complete by themselves
    try:
        names = sorted(open_store(root).names())
    except (CheckpointException, ValueError):
        return []
    words = [str(step) if (step := told_step(name)) is not None else name for name in names]
    return [f"{root}@{word}" for word in words if word.startswith(begun)]


RefArgument = Annotated[
    str,
    typer.Argument(
        metavar="REF", help="ROOT, ROOT@STEP, ROOT@best:METRIC, ROOT@id:ID or a folder.", autocompletion=complete_ref
    ),
]
RootArgument = Annotated[str, typer.Argument(metavar="ROOT", help="The folder or URL given to mc.save.")]
CatalogArgument = Annotated[
    str, typer.Argument(metavar="CATALOG", help="A root that has a catalog, a .db file, or a database URL.")
]
PartsOption = Annotated[
    list[str] | None,
    typer.Option("--parts", metavar="PART", help="Only this part or pattern; may be given several times."),
]
DatabaseOption = Annotated[
    str, typer.Option("--database", metavar="URL", help="The catalog; by default catalog.db in ROOT, if there is one.")
]
QueryOption = Annotated[
    str,
    typer.Option("--query", "-q", metavar="SEARCH", help='e.g. "val_loss < 0.3 tag:baseline -status:failed words".'),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
