"""Summary: what a saved tree is made of, part by part, and what a resume would lack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model_checkpoint.manifest import Entry, Node
from model_checkpoint.tree.names import ROOT, final
from model_checkpoint.tree.specs import specs
from model_checkpoint.tree.walk import MAPPINGS, children, tag_of

KINDS = ("module", "optimizer", "scheduler", "scaler", "rng", "data")
_WANTED = {"model": "module", "optimizer": "optimizer", "scheduler": "scheduler", "scaler": "scaler", "rng": "rng"}
_APART = MAPPINGS | {"dc", "nt"}  # what has parts with names of their own
_COUNTERS = ("step", "global_step", "epoch", "iteration")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSummary:
    """One top-level part of a state."""

    name: str
    kind: str  # one of KINDS
    class_name: str  # class that was saved, "" for plain data
    tensors: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSummary:
    """All parts of a state, and which parts of a training run are absent from it."""

    parts: Sequence[PartSummary]
    absent: Sequence[str]
    tensors: int
    nbytes: int


def summary(tree: Node, entries: Sequence[Entry]) -> TreeSummary:
    """Describe a saved tree; a stored array that several parts share counts in the first.

    Example:
        >>> told = summary(["d", ["epoch", 3]], [])
        >>> told.parts[0].name, told.absent
        ('epoch', ('model', 'optimizer', 'scheduler', 'scaler', 'rng'))
    """
    apart = isinstance(tree, list) and tag_of(tree) in _APART and _kind(tree) == "data"
    top = children(tree, "") if apart and isinstance(tree, list) else [("", tree)]
    counted: set[int] = set()
    parts = [_part(name, node, entries, counted) for name, node in top]
    present = {part.kind for part in parts}
    absent = [what for what, kind in _WANTED.items() if kind not in present]
    if not any(part.name in _COUNTERS for part in parts):
        absent.append("step")
    return TreeSummary(
        parts=tuple(parts),
        absent=tuple(absent),
        tensors=sum(part.tensors for part in parts),
        nbytes=sum(part.nbytes for part in parts),
    )


def _part(name: str, node: Node, entries: Sequence[Entry], counted: set[int]) -> PartSummary:
    found = [spec.entry for spec in specs(node, entries)]
    new = [index for index in dict.fromkeys(found) if index not in counted]
    counted.update(new)
    class_name = str(node[2]) if isinstance(node, list) and tag_of(node) == "m" else ""
    return PartSummary(
        name=final(name) if name else ROOT,
        kind=_kind(node),
        class_name=class_name,
        tensors=len(found),
        nbytes=sum(entries[index].nbytes for index in new),
    )


def _kind(node: Node) -> str:
    """Return the kind of a part; a bare state_dict is known by its shape."""
    match node:
        case ["m", str(kind), *_]:
            return kind if kind in KINDS else "data"
        case ["o", list(), True, *_]:
            return "module"
        case ["d", list(flat)] if {"state", "param_groups"} <= {key for key in flat[::2] if isinstance(key, str)}:
            return "optimizer"
    return "data"
