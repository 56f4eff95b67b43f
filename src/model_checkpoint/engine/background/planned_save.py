"""Planned save: a save that is planned and not written yet, of one process or of many ranks together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from model_checkpoint.engine.background.lazy import guard_state, of_pieces
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.jobs import inflight
from model_checkpoint.engine.jobs.followups import FollowUp
from model_checkpoint.engine.jobs.inflight import Busy
from model_checkpoint.engine.jobs.running_save import RunningSave
from model_checkpoint.engine.writing.rank_saves.save_ranks import RankSave
from model_checkpoint.engine.writing.request import SaveRequest
from model_checkpoint.engine.writing.save import Move, Overwrite, commit_plan, plan_save
from model_checkpoint.engine.writing.save_plan import SavePlan
from model_checkpoint.errors import CheckpointException, NeedsCoordinator
from model_checkpoint.events import Emit
from model_checkpoint.storage.contract.store import Store

if TYPE_CHECKING:
    from model_checkpoint.tree.flattening.torch_guards import Guard


class PlannedSave(Protocol):
    """What a background save carries out."""

    @property
    def planned(self) -> SavePlan:
        """What this process writes."""
        ...

    def begin(self, job: RunningSave, state: object, busy: Busy) -> RunningSave | None:
        """Enter the save and plan it; return the one it must queue behind. One that is skipped is ended."""
        ...

    def guard(self, optimizers: Sequence[object]) -> Guard | None:
        """What guards the leaves of the plan; see :func:`guard_state`."""
        ...

    def heard(self, emit: Emit) -> Emit:
        """Where progress is told."""
        ...

    def finish(self, move: Move) -> tuple[CheckpointInfo, FollowUp | None]:
        """Write and publish."""
        ...

    def abandon(self, error: BaseException) -> None:
        """Let go of what was begun and will not be finished; never raises."""
        ...


class SaveAlone:
    """A save of one process."""

    def __init__(self, store: Store, order: SaveRequest, overwrite: Overwrite) -> None:
        self._store, self._order, self._overwrite = store, order, overwrite
        self._planned: SavePlan | None = None
        self.ahead: RunningSave | None = None

    @property
    def planned(self) -> SavePlan:
        """What is written."""
        return _there(self._planned)

    def begin(self, job: RunningSave, state: object, busy: Busy) -> RunningSave | None:
        """Wait for earlier saves as the caller wants, then plan."""
        self.ahead = inflight.admit(job, busy)
        if not job.done():
            self._planned = plan_save(self._store, self._order, state, overwrite=self._overwrite)
        return self.ahead

    def guard(self, optimizers: Sequence[object]) -> Guard | None:
        """What guards the leaves of the plan."""
        return guard_state(self.planned.flat, optimizers, self.planned.where)

    def heard(self, emit: Emit) -> Emit:
        """Where progress is told: to the caller."""
        return emit

    def finish(self, move: Move) -> tuple[CheckpointInfo, FollowUp | None]:
        """Write and publish."""
        return commit_plan(self.planned, move)

    def abandon(self, error: BaseException) -> None:
        """Remove what was linked."""
        if self._planned is not None:
            self._planned.abandon()


class SaveOnRanks:
    """A save of many ranks, as one of them sees it."""

    def __init__(self, saving: RankSave, *, entered: SaveAlone | None = None) -> None:
        self._saving, self._entered = saving, entered
        self._planned: SavePlan | None = None
        self._ended = False

    @property
    def planned(self) -> SavePlan:
        """What this rank writes."""
        return _there(self._planned)

    def excuse(self, error: BaseException) -> BaseException:
        """Tell the others that this rank cannot even ask; return what to raise."""
        return self._saving.excuse(error)

    def begin(self, job: RunningSave, state: object, busy: Busy) -> RunningSave | None:
        """Wait for earlier saves as rank 0 wants, agree with the others, and plan."""
        ahead: list[RunningSave | None] = []

        def enter(wanted: Busy) -> bool:
            if self._entered is not None:  # it turned out to be a mesh of one rank
                ahead.append(self._entered.ahead)
                return True
            ahead.append(inflight.admit(job, wanted))
            return not job.done()

        self._planned = self._saving.begin(state, enter=enter, busy=busy)
        if self._planned is None:
            self._ended = True
            job.skip()
        return ahead[0] if ahead else None

    def guard(self, optimizers: Sequence[object]) -> Guard | None:
        """What guards the pieces of the plan, by what guards the arrays they are of."""
        flat = self._saving.take_flat()
        found = guard_state(flat, optimizers, self.planned.where)
        return None if found is None else of_pieces(found, self._saving.origins)

    def heard(self, emit: Emit) -> Emit:
        """Where progress is told: to the caller, and as a sign of life to the others."""
        return self._saving.heard(emit)

    def finish(self, move: Move) -> tuple[CheckpointInfo, FollowUp | None]:
        """Write, vote, and hear what became of it."""
        self._ended = True
        return self._saving.finish(move)

    def abandon(self, error: BaseException) -> None:
        """Tell the others, unless they know."""
        if self._planned is not None and not self._ended:
            self._ended = True
            self._saving.abandon(error)


def begin_either(
    save: PlannedSave,
    mesh_of_one: Callable[[], PlannedSave] | None,
    job: RunningSave,
    state: object,
    busy: Busy,
) -> tuple[PlannedSave, RunningSave | None]:
    """Begin a save, on a mesh of one rank if it turns out to be one; the save, and what it must queue behind."""
    try:
        return save, save.begin(job, state, busy)
    except NeedsCoordinator:
        if mesh_of_one is None or isinstance(save, SaveOnRanks):
            raise
    other = mesh_of_one()
    return other, other.begin(job, state, busy)


@contextmanager
def excused(on_ranks: Callable[[], SaveOnRanks] | None) -> Iterator[None]:
    """Tell the other ranks, if there are some, what keeps this one from even asking."""
    try:
        yield
    except CheckpointException as error:
        if on_ranks is None:
            raise
        raise on_ranks().excuse(error) from error


def _there(planned: SavePlan | None) -> SavePlan:
    if planned is None:
        raise AssertionError("a save is begun before it is carried out")
    return planned
