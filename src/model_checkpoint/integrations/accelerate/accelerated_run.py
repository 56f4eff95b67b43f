"""Accelerated run: the loop over what an Accelerator prepared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from accelerate import Accelerator

from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.integrations.accelerate.prepared_objects import prepared_objects
from model_checkpoint.integrations.loop.run import Run
from model_checkpoint.storage.locate import Root

if TYPE_CHECKING:  # brings SQLAlchemy
    from model_checkpoint.tracking import ExperimentTracker


class AcceleratedRun(Run):
    """``mc.Run`` over a prepared loader; what the Accelerator prepared or registered is saved without being named.

    Args:
        accelerator: The one that prepared model, optimizer, scheduler and loader: all of them before this is made.
        root: Where checkpoints go: a folder or URL.
        data: The prepared loader.
        epochs: How often to go through the data.
        every: Batches between two saves, made where gradients were synchronised and stepped; None saves at the end.
        keep: Keepers, e.g. ``[mc.last(3), mc.best("val_loss", 2)]``.
        catalog: The URL of a database, or an ExperimentTracker: what is logged and every checkpoint goes there.
        grace: Seconds for which a dropped checkpoint can be brought back.
        deadline: Seconds between SIGTERM and the end of the process.
        progress: Show a bar; by default where there is a terminal, else only the line that says what it goes on from.
        **objects: Whatever else has a state and was neither prepared nor registered.

    Raises:
        TrainerUnknown: a version of accelerate, or a way to distribute, with which a resume is not known to be exact.

    Example:
        >>> import torch
        >>> accelerator = Accelerator(cpu=True)
        >>> model = torch.nn.Linear(1, 1)
        >>> loader = torch.utils.data.DataLoader(torch.arange(6.0).view(6, 1), batch_size=2)
        >>> model, loader = accelerator.prepare(model, loader)
        >>> run = AcceleratedRun(accelerator, "memory://doc-accelerated", data=loader, epochs=2)
        >>> for batch in run:
        ...     run.log(loss=model(batch).mean())
        >>> run.step, run.exact
        (6, True)
    """

    def __init__(
        self,
        accelerator: Accelerator,
        root: Root,
        *,
        data: Any,
        epochs: int = 1,
        every: int | None = 500,
        keep: Sequence[Keeper] = (),
        catalog: str | ExperimentTracker | None = None,
        grace: float = 3600.0,
        deadline: float = 30.0,
        progress: bool | None = None,
        **objects: Any,
    ) -> None:
        prepared = prepared_objects(accelerator)
        for name in objects:
            if name in prepared:
                raise OptionInvalid(f"{name}=: the accelerator prepared this already; give the object another name.")
        super().__init__(
            root, data=data, epochs=epochs, every=every, keep=keep, catalog=catalog, grace=grace, deadline=deadline,
            progress=progress, **prepared, **objects,
        )  # fmt: skip
