"""Family tree: which runs came out of which, and at which checkpoint; told by the edges of a catalog."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from model_checkpoint.database.event_records import LineageEdge
from model_checkpoint.database.records import Checkpoint, Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyMember:
    """One run, and the checkpoint of the one above that it came out of."""

    depth: int
    run: str  # its id
    name: str  # empty if the catalog does not have it
    status: str
    step: int | None
    checkpoints: int
    from_checkpoint: str
    from_step: int | None
    here: bool  # the run that was asked for


@dataclass(frozen=True, slots=True)
class _Branch:
    """A run that came out of a checkpoint of another."""

    parent: str
    child: str
    checkpoint: str
    step: int | None


def family_of(
    run: str,
    edges: Sequence[LineageEdge],
    runs: Mapping[str, Experiment],
    read: Callable[[Sequence[str]], Sequence[Checkpoint]],
) -> list[FamilyMember]:
    """The family of a run, its first ancestor on top, each run below what it came out of.

    Example:
        >>> edges = [LineageEdge(parent="a", child="c1", kind="saved", step=4, created_at=0),
        ...          LineageEdge(parent="c1", child="b", kind="resumed", step=4, created_at=1)]
        >>> [(one.depth, one.run, one.from_step, one.here) for one in family_of("b", edges, {}, lambda ids: [])]
        [(0, 'a', None, False), (1, 'b', 4, True)]
    """
    saved = {edge.child: edge.parent for edge in edges if edge.kind == "saved"}
    counts: dict[str, int] = defaultdict(int)
    for parent in saved.values():
        counts[parent] += 1
    resumed = [edge for edge in edges if edge.kind == "resumed"]
    unknown = [edge.parent for edge in resumed if edge.parent not in saved]
    saved |= {row.id: row.experiment_id for row in read(unknown)}
    branches = [_Branch(saved.get(one.parent, one.parent), one.child, one.parent, one.step) for one in resumed]
    branches = [one for one in branches if one.parent != one.child]  # a run that goes on with itself
    top = _first_ancestor(run, {one.child: one.parent for one in branches})
    return [
        FamilyMember(
            depth=depth,
            run=one,
            name=runs[one].name if one in runs else "",
            status=runs[one].status if one in runs else "",
            step=runs[one].step if one in runs else None,
            checkpoints=counts[one],
            from_checkpoint=branch.checkpoint if branch else "",
            from_step=branch.step if branch else None,
            here=one == run,
        )
        for depth, one, branch in _below(top, branches, 0, None, set())
    ]


def _first_ancestor(run: str, parents: Mapping[str, str]) -> str:
    seen = {run}
    while (above := parents.get(run)) is not None and above not in seen:
        seen.add(above)
        run = above
    return run


def _below(
    run: str, branches: Sequence[_Branch], depth: int, branch: _Branch | None, seen: set[str]
) -> Iterator[tuple[int, str, _Branch | None]]:
    if run in seen:
        return
    seen.add(run)
    yield depth, run, branch
    for child in sorted((one for one in branches if one.parent == run), key=lambda one: (one.step or 0, one.child)):
        yield from _below(child.child, branches, depth + 1, child, seen)
