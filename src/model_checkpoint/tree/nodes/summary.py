"""Summary: what a saved tree is made of, part by part, and what a resume would lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from model_checkpoint.manifest import Entry, Node
from model_checkpoint.tree.nodes.names import ROOT, final
from model_checkpoint.tree.nodes.specs import specs
from model_checkpoint.tree.nodes.walk import ABSENT, ARRAYS, MAPPINGS, children, tag_of

KINDS = ("module", "optimizer", "scheduler", "scaler", "rng", "data")
_KERAS = {"keras.model": "module", "keras.optimizer": "optimizer"}
_WANTED = {"model": "module", "optimizer": "optimizer", "scheduler": "scheduler", "rng": "rng"}  # most need no scaler
_NAMES = {  # what plain data is by the name of its key, since most frameworks keep their state in plain containers
    "model": "module",
    "params": "module",
    "optimizer": "optimizer",
    "opt": "optimizer",
    "optim": "optimizer",
    "opt_state": "optimizer",
    "scheduler": "scheduler",
    "lr_scheduler": "scheduler",
    "scaler": "scaler",
    "rng": "rng",
    "rng_state": "rng",
}
_MARKS = {  # what a bare state_dict is by keys that all of its kind have
    "optimizer": {"state", "param_groups"},
    "scheduler": {"last_epoch", "_step_count"},
    "scaler": {"scale", "growth_factor", "_growth_tracker"},
    "rng": {"python", "numpy"},
}
_APART = MAPPINGS | {"dc", "nt"}  # what has parts with names of their own
_COUNTERS = ("step", "global_step", "epoch", "iteration")
_SCHEDULED = "initial_lr"  # what every scheduler of torch leaves in the groups of its optimizer


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
        ('epoch', ('model', 'optimizer', 'scheduler', 'rng'))
    """
    apart = isinstance(tree, list) and tag_of(tree) in _APART and _kind(tree) == "data"
    top = children(tree, "") if apart and isinstance(tree, list) else [("", tree)]
    counted: set[int] = set()
    parts = [_part(name, node, entries, counted) for name, node in top]
    present = set(_present(tree, "", entries))
    if "optimizer" in present and not _is_scheduled(tree):
        present.add("scheduler")  # there was none, or it has no state of its own, as in Optax and Keras
    absent = [what for what, kind in _WANTED.items() if kind not in present]
    if "step" not in present:
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


def _present(node: Node, key: str, entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the kinds of all that a resume finds anywhere in the tree; None and empty containers are nothing."""
    if node is None or node == ABSENT:
        return
    if key in _COUNTERS:
        yield "step"
    if not isinstance(node, list):
        return
    under = children(node, "")
    if _kind(node) != "data":
        yield _kind(node)
    elif under and key in _NAMES:
        yield _NAMES[key]
    elif tag_of(node) in ARRAYS:
        yield from _array_kinds(node, key, entries)
    for name, item in under if _kind(node) == "data" else ():
        yield from _present(item, name, entries)


def _is_scheduled(node: Node) -> bool:
    """Whether an optimizer in it had a scheduler, by the mark that leaves; moments and weights are not looked at."""
    if not isinstance(node, list) or _kind(node) == "module":
        return False
    under = [(name, item) for name, item in children(node, "") if not name.startswith("state")]
    return any(name == _SCHEDULED or _is_scheduled(item) for name, item in under)


def _array_kinds(node: list[Any], key: str, entries: Sequence[Entry]) -> Iterator[str]:
    """Yield what one array is: a typed JAX key is a random generator, others are what they are called."""
    if isinstance(entries[node[1]].attributes, list) and entries[node[1]].kind == "jax":
        yield "rng"
    elif key in _NAMES:
        yield _NAMES[key]


def _kind(node: Node) -> str:
    """Return the kind of a part; a bare state_dict is known by its shape."""
    match node:
        case ["m", str(kind), *_]:
            kind = _KERAS.get(kind, kind)
            return kind if kind in KINDS else "data"
        case ["o", list(), True, *_]:
            return "module"
        case ["d", list(flat)]:
            keys = {key for key in flat[::2] if isinstance(key, str)}
            return next((kind for kind, marks in _MARKS.items() if marks <= keys), "data")
    return "data"
