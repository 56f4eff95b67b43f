"""Checkpoint detail: one checkpoint, whole: parts, files, damage, and what to type for the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from model_checkpoint import tree
from model_checkpoint.api.answers.plain_values import plain_of
from model_checkpoint.api.library.shelves import Shelf
from model_checkpoint.api.reading.checkpoint_lines import lines_of, reference
from model_checkpoint.api.reading.damage_lines import damage_of
from model_checkpoint.api.reading.save_timeline import stall_of
from model_checkpoint.database import Checkpoint
from model_checkpoint.engine.root.listing import read_any_manifest
from model_checkpoint.engine.root.run_position import position_in
from model_checkpoint.errors import CheckpointException
from model_checkpoint.manifest import OPAQUE, Manifest
from model_checkpoint.storage.locate import open_store

_MOST_FILES = 1000
WITHOUT = {  # what a resume does without each part
    "model": "nothing can be resumed: there are no weights",
    "optimizer": "momentum and second moments begin at zero: expect a bump in the loss",
    "scheduler": "the learning rate begins its schedule anew",
    "scaler": "the loss scale begins at its first value",
    "rng": "random numbers differ from those of an unbroken run",
    "data": "the order of the data begins anew: samples are repeated or skipped",
    "step": "the step is not known: counting begins at zero",
}
_KINDS = {"module": "model"}


def describe_checkpoint(shelf: Shelf, row: Checkpoint) -> dict[str, Any]:
    """The document of one checkpoint; where its files cannot be looked at, it says why instead of what is in them."""
    connection = shelf.connection
    manifest, problem = _manifest(row)
    parts, lacking = _parts(row, manifest)
    previous, following = connection.neighbours(row)
    (line,) = lines_of(shelf, [row])
    return {
        **line,
        "path": row.file_path,
        "checksum": row.checksum,
        "backend": row.backend,
        "epoch": row.epoch,
        "metadata": plain_of(row.metadata),
        "parts": parts,
        "lacking": lacking,
        "run_position": _position(manifest),
        "stall": stall_of(shelf, row),
        "problem": problem,
        "files": [] if manifest is None else _files(manifest),
        "damage": damage_of(connection, row),
        "children": connection.beginnings([row.id]).get(row.id, []),
        "prev": previous,
        "next": following,
        "cli": command_lines(shelf, row),
    }


def _manifest(row: Checkpoint) -> tuple[Manifest | None, str]:
    if not row.root or not row.name:
        return None, "it is a bare file of another tool; nothing more is known of it."
    try:
        return read_any_manifest(open_store(row.root), row.name), ""
    except CheckpointException as error:
        return None, str(error)


def _position(manifest: Manifest | None) -> dict[str, Any] | None:
    if manifest is None or OPAQUE in manifest.features:
        return None
    found = position_in(manifest)
    return None if found is None else asdict(found)


def _files(manifest: Manifest) -> list[dict[str, Any]]:
    records = [*manifest.files, *manifest.extras][:_MOST_FILES]
    return [{"name": one.name, "bytes": one.size, "digest": one.digest} for one in records]


def _parts(row: Checkpoint, manifest: Manifest | None) -> tuple[list[dict[str, Any]], list[str]]:
    """What is there, then what is not and what that means."""
    if manifest is None or OPAQUE in manifest.features:
        return [_part(name, None, True, "", name) for name in row.parts], []
    told = tree.summary(manifest.tree, manifest.entries)
    parts = [_part(one.name, one.nbytes, True, _has(one), _KINDS.get(one.kind, one.kind)) for one in told.parts]
    lacking = [name for name in told.absent if name != "step" or manifest.step is None]
    parts += [_part(name, 0, False, "", name) for name in lacking]
    parts += [_part(name, 0, False, "left out by an emergency save", name) for name in manifest.left_out]
    return parts, lacking


def _part(name: str, nbytes: int | None, present: bool, has: str, kind: str) -> dict[str, Any]:
    without = WITHOUT.get(name, WITHOUT.get(kind, "it begins anew"))
    return {"name": name, "bytes": nbytes, "present": present, "has": has, "without": without}


def _has(part: tree.PartSummary) -> str:
    tensors = f"{part.tensors} tensor{'' if part.tensors == 1 else 's'}" if part.tensors else "plain values"
    return f"{tensors} of {part.class_name}" if part.class_name else tensors


def command_lines(shelf: Shelf, row: Checkpoint) -> dict[str, str]:
    """What to type for the same."""
    ref, word = f"{row.root}@{row.name}", reference(row)
    told = f"{word} {shelf.told_by(row.root)}".rstrip() if not shelf.mirror else word
    return {
        "show": f"mckpt show {word}",
        "load": f"mc.load({ref!r})",
        "verify": f"mckpt verify {word}",
        "delete": f"mckpt rm {told}",
        "restore": f"mckpt restore {told}",
    }


def part_of(name: str, parts: Sequence[str]) -> str:
    """The part a tensor lies in, by its dotted name.

    Example:
        >>> part_of("model.fc.weight", ["model", "optimizer"]), part_of("w", [])
        ('model', 'w')
    """
    return next((part for part in parts if name == part or name.startswith(f"{part}.")), name.partition(".")[0])
