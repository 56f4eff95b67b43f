"""Runs: the roots below a folder, one line each."""

from __future__ import annotations

import os
from dataclasses import dataclass

from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.root.listing import list_checkpoints
from model_checkpoint.errors import CheckpointNotFound
from model_checkpoint.name_lists import some_of
from model_checkpoint.storage.locate import open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """One root: how many checkpoints it has, and the newest of them."""

    root: str
    checkpoints: int
    newest: CheckpointInfo


def find_runs(folder: str) -> list[RunLine]:
    """The roots among the folders right below ``folder``, by name; none where that is a URL or no folder."""
    if "://" in folder:
        return []
    try:
        below = sorted(entry.path for entry in os.scandir(os.path.expanduser(folder)) if entry.is_dir())
    except OSError:
        return []
    return [line for path in below if (line := _look_at(path)) is not None]


def runs_in(folder: str) -> str:
    """The sentence that leads from a folder of runs to one of them; nothing where it is a root, or holds none.

    Example:
        >>> runs_in("no/such/folder")
        ''
    """
    below = [line.root for line in find_runs(folder)] if not os.path.isdir(os.path.join(folder, "checkpoints")) else []
    return f"It holds runs: {some_of(below)}; name one." if below else ""


def nothing_in(folder: str, verb: str) -> CheckpointNotFound:
    """That there is nothing to do in a folder, and where there may be."""
    where = runs_in(folder) or "Check the path, or save there first."
    return CheckpointNotFound(f"{folder}: no committed checkpoint to {verb}. {where}")


def require_run(folder: str, verb: str) -> None:
    """Raise where nothing was to be done because the runs lie right below the folder that was named."""
    if not open_store(folder).names() and find_runs(folder):
        raise nothing_in(folder, verb)


def _look_at(path: str) -> RunLine | None:
    if not open_store(path).names():
        return None
    found = list_checkpoints(path)
    return RunLine(root=path, checkpoints=len(found), newest=found[0]) if found else None
