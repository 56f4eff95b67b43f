"""Disk forecast: when the disk will be full at the pace so far, and what a set of keepers will hold.

The pace is that of the latest saves: seconds, steps and new bytes between one and the next, a copy that several share
counted once. What keepers will hold is found by planning for saves to come, with the planner that prunes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import mean, median

from model_checkpoint.checkpoint.retention.amounts import Age, as_seconds
from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.checkpoint.retention.candidates import Candidate, read_candidates, unique_bytes
from model_checkpoint.checkpoint.retention.retention_plan import plan_retention
from model_checkpoint.engine.root.listing import require_root
from model_checkpoint.notebook_html import html_table
from model_checkpoint.options import Graces
from model_checkpoint.storage.locate import Root, open_store

_GRACE = Graces().trash
_LATEST = 20  # saves that make the pace
_HORIZON = 2000  # saves to come that are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePace:
    """What one save brings, on average of the latest."""

    nbytes: float
    seconds: float | None  # None if there is but one save
    steps: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskForecast:
    """What a root holds, what each save adds, and how long that goes well.

    ``saves_left`` and ``seconds_left`` are None if nobody can tell, or if the disk lasts as far as can be seen.
    ``steady_checkpoints`` and ``steady_bytes`` are what the keepers hold in the end, None if that grows for ever;
    ``steady_trash_bytes`` is what waits in the trash beside it.
    """

    root: str
    checkpoints: int
    held_bytes: int
    trash_bytes: int
    free_bytes: int | None
    pace: SavePace
    saves_left: int | None
    keepers: tuple[str, ...] = ()
    steady_checkpoints: int | None = None
    steady_bytes: int | None = None
    steady_trash_bytes: int | None = None

    @property
    def seconds_left(self) -> float | None:
        """Time until the disk is full."""
        return None if self.saves_left is None or self.pace.seconds is None else self.saves_left * self.pace.seconds

    def summary(self) -> str:
        """The forecast as text."""
        each = f"each save adds {self.pace.nbytes:.0f} bytes"
        lines = [f"{self.root}: {self.checkpoints} checkpoints, {self.held_bytes} bytes; {each}"]
        if self.free_bytes is None:
            lines.append("the medium does not tell how much room is left")
        elif self.saves_left is None:
            lines.append(f"{self.free_bytes} bytes are free, enough as far as can be seen")
        else:
            when = "" if self.seconds_left is None else f", in {timedelta(seconds=round(self.seconds_left))}"
            lines.append(f"{self.free_bytes} bytes are free: full after {self.saves_left} more saves{when}")
        if self.keepers:
            held = "grows for ever"
            if self.steady_bytes is not None:
                trash = f", and {self.steady_trash_bytes} in the trash" if self.steady_trash_bytes else ""
                held = f"holds {self.steady_checkpoints} checkpoints, {self.steady_bytes} bytes{trash}"
            lines.append(f"{', '.join(self.keepers)}: {held}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        title, *told = self.summary().split("\n")
        return html_table(title, [], [], remarks=told)


def forecast(root: Root, keep: Sequence[Keeper] | None = None, *, grace: Age | None = None) -> DiskForecast:
    """Tell when the disk of ``root`` will be full, and with ``keep`` what those keepers will hold if pruned each save.

    Example:
        >>> import model_checkpoint as mc
        >>> for step in range(3):
        ...     _ = mc.save("memory://doc-forecast", {"a": bytes(1000)}, step=step)
        >>> mc.forecast("memory://doc-forecast", keep=[mc.last(5)]).steady_checkpoints
        5
    """
    store = open_store(root)
    require_root(store)
    return foresee(
        read_candidates(store),
        free=store.free_bytes(),
        trash=sum(gone.nbytes for gone in store.trash()),
        keep=tuple(keep or ()),
        grace=Graces().trash if grace is None else as_seconds(grace),
        root=store.url,
    )


def foresee(
    candidates: Iterable[Candidate],
    *,
    free: int | None,
    trash: int = 0,
    keep: Sequence[Keeper] = (),
    grace: float = _GRACE,
    root: str = "",
) -> DiskForecast:
    """The forecast for candidates on a medium with ``free`` bytes left. Pure.

    Example:
        >>> saves = [Candidate(id=str(n), name=str(n), step=n, files=((str(n), 10),)) for n in range(4)]
        >>> foresee(saves, free=1000).saves_left
        100
    """
    found = sorted(candidates, key=lambda one: (one.created, one.name))
    pace = pace_of(found)
    ahead = _SavesAhead(tuple(found), tuple(keep), pace, grace)
    steady = ahead.steady() if keep else (None, None, None)
    return DiskForecast(
        root=root,
        checkpoints=len(found),
        held_bytes=unique_bytes(found),
        trash_bytes=trash,
        free_bytes=free,
        pace=pace,
        saves_left=None if free is None else ahead.saves_within(free),
        keepers=tuple(map(str, keep)),
        steady_checkpoints=steady[0],
        steady_bytes=steady[1],
        steady_trash_bytes=steady[2],
    )


def pace_of(found: Sequence[Candidate]) -> SavePace:
    """What the latest saves brought; ``found`` in the order of commit.

    Example:
        >>> base, day = (("base", 100),), timedelta(days=1)
        >>> start = datetime(2026, 1, 1, tzinfo=UTC)
        >>> saves = [
        ...     Candidate(id=str(n), name=str(n), step=10 * n, committed_at=start + n * day, files=(*base, (str(n), 5)))
        ...     for n in range(3)
        ... ]
        >>> pace_of(saves)
        SavePace(nbytes=5, seconds=86400.0, steps=10)
    """
    seen, new = set[str](), list[int]()
    for one in found:
        new.append(sum(nbytes for key, nbytes in dict(one.files).items() if key not in seen))
        seen.update(key for key, _ in one.files)
    times = [one.committed_at for one in found if one.committed_at is not None][-_LATEST - 1 :]
    steps = sorted(one.step for one in found if one.step is not None)[-_LATEST - 1 :]
    gaps = [(later - sooner).total_seconds() for sooner, later in pairwise(times)]
    strides = [later - sooner for sooner, later in pairwise(steps)]
    return SavePace(
        nbytes=mean(new[1:][-_LATEST:] or new or [0]),
        seconds=max(median(gaps), 1e-9) if gaps else None,
        steps=max(round(median(strides)), 1) if strides else None,
    )


@dataclass(frozen=True, slots=True)
class _SavesAhead:
    """Saves to come at one pace, on top of what is there."""

    found: tuple[Candidate, ...]
    keep: tuple[Keeper, ...]
    pace: SavePace
    grace: float

    def after(self, saves: int) -> tuple[int, int, int]:
        """Checkpoints and bytes that are kept after so many more saves, and bytes that wait in the trash."""
        count, nbytes = self._kept(saves)
        waits = min(saves, self._in_one_grace())
        dropped = waits * round(self.pace.nbytes) - (nbytes - self._kept(saves - waits)[1]) if waits else 0
        return count, nbytes, max(dropped, 0)

    def _in_one_grace(self) -> int:
        """Saves that come while one that was dropped waits."""
        return int(self.grace // self.pace.seconds) if self.pace.seconds else 0

    def _kept(self, saves: int) -> tuple[int, int]:
        coming = self._coming(saves)
        plan = plan_retention((*self.found, *coming), self.keep, now=coming[-1].committed_at if coming else None)
        return len(plan.kept), plan.kept_bytes

    def _coming(self, saves: int) -> list[Candidate]:
        newest = self.found[-1] if self.found else None
        before = {key for one in self.found[:-1] for key, _ in one.files}
        base = tuple(file for file in newest.files if file[0] in before) if newest is not None else ()
        step = max((one.step for one in self.found if one.step is not None), default=0)
        start = newest.committed_at if newest is not None and newest.committed_at is not None else datetime.now(UTC)
        return [
            Candidate(
                id=f"save to come {number}",
                name=f"save to come {number}",
                step=step + number * (self.pace.steps or 1),
                committed_at=start + timedelta(seconds=number * (self.pace.seconds or 1.0)),
                files=(*base, (f"save to come {number}", round(self.pace.nbytes))),
            )
            for number in range(1, saves + 1)
        ]

    def steady(self) -> tuple[int | None, int | None, int | None]:
        """What is held in the end; nothing if it still grows where we stop looking."""
        half, (count, nbytes, waiting) = self.after(_HORIZON // 2), self.after(_HORIZON)
        if count > half[0]:
            return None, None, None
        return (
            count,
            nbytes,
            round(waiting * max(1.0, self._in_one_grace() / _HORIZON)),
        )  # at one pace behind there, too

    def saves_within(self, free: int) -> int | None:
        """How many more saves fit; None if all that we look at do. The new is there before the old goes."""
        if not self.pace.nbytes:
            return None
        if not self.keep:
            return int(free // self.pace.nbytes)
        room = unique_bytes(self.found) + free
        low, high = 0, _HORIZON
        if self._needs(high) <= room:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._needs(middle) <= room else (low, middle)
        return low

    def _needs(self, saves: int) -> float:
        _, kept, waiting = self.after(saves)
        return kept + waiting + self.pace.nbytes
