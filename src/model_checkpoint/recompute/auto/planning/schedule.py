"""Schedule: which stages are kept and which are run again, as a tree of plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Run one stage once and save its tensors in the way ``mode`` says."""

    stage: int
    mode: str = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Run stages ``start..stop`` without saving, and again by ``body`` when backward comes."""

    start: int
    stop: int
    body: tuple[Keep | Region, ...]
    ahead: bool = True  # where regions are prefetched, this one is


Schedule = tuple[Keep | Region, ...]


def describe_schedule(schedule: Schedule) -> str:
    """Show a schedule on one line.

    Example:
        >>> region = Region(start=0, stop=1, body=(Keep(stage=0), Keep(stage=1, mode="drop")))
        >>> describe_schedule((region, Keep(stage=2)))
        '[0 1:drop] 2'
    """
    words = []
    for node in schedule:
        if isinstance(node, Region):
            words.append(f"[{describe_schedule(node.body)}]")
        else:
            words.append(str(node.stage) if node.mode == "full" else f"{node.stage}:{node.mode}")
    return " ".join(words)


def encode_schedule(schedule: Schedule) -> list[Any]:
    """Turn a schedule into lists and dicts that JSON can hold; :func:`decode_schedule` is the way back.

    Example:
        >>> decode_schedule(encode_schedule((Keep(stage=0),))) == (Keep(stage=0),)
        True
    """
    return [
        {"start": n.start, "stop": n.stop, "body": encode_schedule(n.body), "ahead": n.ahead}
        if isinstance(n, Region)
        else {"stage": n.stage, "mode": n.mode}
        for n in schedule
    ]


def decode_schedule(nodes: Sequence[Any]) -> Schedule:
    """Rebuild a schedule from what :func:`encode_schedule` made."""
    return tuple(
        Region(start=n["start"], stop=n["stop"], body=decode_schedule(n["body"]), ahead=n["ahead"])
        if "body" in n
        else Keep(stage=n["stage"], mode=n["mode"])
        for n in nodes
    )


def keep_all(count: int, mode: str = "full") -> Schedule:
    """The schedule of plain training."""
    return tuple(Keep(stage=index, mode=mode) for index in range(count))


def is_flat(schedule: Schedule) -> bool:
    """Whether every stage is kept in full, or run again on its own.

    Example:
        >>> is_flat((Keep(stage=0), Region(start=1, stop=1, body=(Keep(stage=1),))))
        True
        >>> is_flat((Region(start=0, stop=1, body=(Keep(stage=0), Keep(stage=1))),))
        False
    """
    return all(
        node.body == (Keep(stage=node.start),) if isinstance(node, Region) else node.mode == "full" for node in schedule
    )


def stages_of(schedule: Schedule) -> list[int]:
    """The stages a schedule runs, in order."""
    order: list[int] = []
    for node in schedule:
        order.extend(range(node.start, node.stop + 1) if isinstance(node, Region) else (node.stage,))
    return order


def expand(schedule: Schedule, groups: Sequence[range]) -> Schedule:
    """Rewrite a schedule over merged stages as one over the stages themselves."""
    nodes: list[Keep | Region] = []
    for node in schedule:
        if isinstance(node, Region):
            start, stop = groups[node.start].start, groups[node.stop].stop - 1
            nodes.append(Region(start=start, stop=stop, body=expand(node.body, groups), ahead=node.ahead))
        else:
            nodes.extend(Keep(stage=index, mode=node.mode) for index in groups[node.stage])
    return tuple(nodes)
