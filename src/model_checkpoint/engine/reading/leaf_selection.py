"""Leaf selection: which part of a saved tree goes into the live objects, settled before any byte is read.

One rule for every leaf, array, object or plain value: what only one side has is a difference, which ``strict`` refuses
and ``strict=False`` leaves out and reports. A load that would fill nothing at all is refused either way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from model_checkpoint import plan, tree
from model_checkpoint.errors import StructureMismatch
from model_checkpoint.manifest import Entry, Manifest, Node
from model_checkpoint.name_lists import some_of
from model_checkpoint.plan import LoadReport
from model_checkpoint.state import LiveSpecs
from model_checkpoint.tree.nodes.names import ROOT
from model_checkpoint.tree.nodes.walk import ABSENT, leaves
from model_checkpoint.tree.restoring.live_state import LiveState

Parts = str | Sequence[str] | None
Rename = Mapping[str, str] | Callable[[str], str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafSelection:
    """The tree to restore, what was left out of it, how many saved leaves it has, and what they go into."""

    tree: Node
    report: LoadReport
    wanted: Callable[[str], bool]  # which names of live objects are asked for
    filled: int = -1
    live: LiveState | None = None


def choose_leaves(manifest: Manifest, where: str, *, parts: Parts, rename: Rename) -> LeafSelection:
    """The saved tree, reduced to ``parts`` and then renamed; a pattern that fits nothing is an error."""
    node = manifest.tree
    if parts is not None:
        node = tree.select(node, plan.matcher(parts))
        names = [name for name, _ in leaves(manifest.tree)]
        idle = [p for p in _patterns(parts) if not any(map(plan.matcher(p), names))]
        if idle:
            tops = sorted({name.split(".")[0] for name in names})
            raise StructureMismatch(
                f"{where}: parts {some_of(idle)} name nothing in it; its parts are {some_of(tops, most=20)}. "
                "See `mckpt show`.",
                where,
            )
    new_name, unused = plan.renamer(rename), list[str]()
    if isinstance(rename, Mapping):
        names = [name for name, _ in leaves(node)]
        unused = [old for old in rename if not any(map(plan.matcher(old), names))]
    node = node if new_name is None else tree.rename(node, new_name)
    report = LoadReport(checkpoint=where, idle_renames=unused)
    return LeafSelection(tree=node, report=report, wanted=plan.live_matcher(parts, rename))


def _patterns(parts: str | Sequence[str]) -> list[str]:
    return [parts] if isinstance(parts, str) else list(parts)


def fit_into(
    chosen: LeafSelection,
    entries: Sequence[Entry],
    into: Any,
    *,
    parts: Parts,
    rename: Rename,
    strict: bool,
    preparing: tree.Preparation,
    cast: bool = False,
) -> LeafSelection:
    """Compare saved and live leaves; return what will be restored, or refuse what differs.

    Where ``parts`` names one part and ``into`` is no state that has it, ``into`` is that part.
    """
    one = _one_part(chosen.tree, parts, rename)

    def compared(node: Node, wanted: Callable[[str], bool]) -> LeafSelection:
        live = LiveState(into)
        if preparing.run(node, live):
            live = LiveState(into)  # what was seen before may have another form by now
        return _compare(node, entries, live, wanted)

    if one != ABSENT and tree.stands_alone(into):
        found = compared(one, lambda _: True)
    else:
        found = compared(chosen.tree, chosen.wanted)
        if not found.filled and one != ABSENT:
            inner = compared(one, lambda _: True)
            found = inner if inner.filled else found
    report = replace(found.report, checkpoint=chosen.report.checkpoint, idle_renames=chosen.report.idle_renames)
    if cast:
        report = replace(report, dtypes=(), casts=report.dtypes)
    _refuse(report, found, strict=strict)
    dropped = set(report.unexpected)
    left = tree.select(found.tree, lambda name: name not in dropped) if dropped else found.tree
    return replace(found, tree=left, report=report)


def _one_part(node: Node, parts: Parts, rename: Rename) -> Node:
    """What the only name in ``parts`` stands for; ABSENT if there are several, or patterns."""
    names = [] if parts is None else _patterns(parts)
    if len(names) != 1 or any(mark in names[0] for mark in "*?["):
        return ABSENT
    new_name = plan.renamer(rename)
    return tree.part_at(node, names[0] if new_name is None else new_name(names[0]))


def _compare(node: Node, entries: Sequence[Entry], live: LiveState, wanted: Callable[[str], bool]) -> LeafSelection:
    found = tree.both_sides(node, entries, live)
    known = {spec.name for spec in found.saved}
    asked = LiveSpecs([s for s in found.live.specs if s.name in known or wanted(s.name)], found.live.open_prefixes)
    unmet = [name for name in found.unmet if wanted(name)]
    report = plan.compare(found.saved, asked, unmet=unmet, unasked=found.unasked)
    empty = found.plain == [ROOT] and not tree.stands_alone(live.into) and live.into  # an empty state fills nothing
    filled = len(found.saved) + len(found.plain) - len(report.unexpected) - bool(empty)
    return LeafSelection(tree=found.tree, report=report, wanted=wanted, filled=filled, live=live)


def _refuse(report: LoadReport, found: LeafSelection, *, strict: bool) -> None:
    """Raise for what cannot be loaded, or what ``strict`` does not let pass, with the cure."""
    if found.filled and not report.clashes and (report.fits or not strict):
        return
    if report.clashes:
        cure = _cure_of_clashes(report)
    elif not found.filled and (report.missing or report.unexpected):
        cure = (
            "Not one leaf of it would be filled. Give the live objects the names that were saved (`mckpt show` lists "
            "them), or rename={saved: live}."
        )
    elif report.fits:
        return
    else:
        cure = "Pass parts=[...] for some parts only, rename={...}, or strict=False."
    where = report.checkpoint
    raise StructureMismatch(
        f"{where}: checkpoint and live objects differ; nothing was changed. {cure}\n{report.render()}",
        where,
        report=report,
    )


def _cure_of_clashes(report: LoadReport) -> str:
    cures = []
    if report.shapes:
        cures.append("Build the live objects with the saved shapes")
    if report.dtypes:
        cures.append(
            "Convert the live objects to the saved dtypes first, or pass cast=True (nothing is cast in silence)"
        )
    return (
        f"{', '.join(cures)}; or leave these leaves out with parts=[...], or load without into= and convert yourself."
    )
