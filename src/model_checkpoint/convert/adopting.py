"""Adopting: all that a trainer left in a folder, taken into a root; what cannot be read is named and passed over."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from model_checkpoint.convert.converting import save_imported
from model_checkpoint.convert.errors import SourceChanged
from model_checkpoint.convert.findings import TrainerCheckpoint, find_checkpoints
from model_checkpoint.convert.formats import import_as
from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.option_checks import require
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.root.describe import describe
from model_checkpoint.errors import CheckpointException, CheckpointNotFound, StepExists
from model_checkpoint.events import Emit
from model_checkpoint.notebook_html import html_table
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.locate import open_store

log = logging.getLogger("model_checkpoint.convert")

_ADOPTED = "adopted"  # in the metadata of a checkpoint: where it comes from, and what its files were then


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """One checkpoint of a trainer that is now one of ours."""

    source: str
    format: str
    name: str
    step: int | None
    metrics: Mapping[str, float]
    nbytes: int
    notes: tuple[str, ...] = ()  # what was left out, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptReport:
    """What became of everything in a folder."""

    root: str
    adopted: tuple[Adopted, ...] = ()
    present: tuple[str, ...] = ()  # names of those that were adopted before, and are unchanged
    failed: Mapping[str, str] = field(default_factory=dict)  # path -> what is wrong with it
    ignored: tuple[str, ...] = ()  # files that are no checkpoints

    @property
    def ok(self) -> bool:
        """Whether everything that looked like a checkpoint is one of ours now."""
        return not self.failed

    def __str__(self) -> str:
        rows = [f"adopted  {one.name}  {_said(one.step)}  from {one.source}" for one in self.adopted]
        rows += [f"  note   {note}" for one in self.adopted for note in one.notes]
        rows += [f"present  {name}" for name in self.present]
        rows += [f"failed   {path}: {what}" for path, what in self.failed.items()]
        counts = f"{len(self.adopted)} adopted, {len(self.present)} present, {len(self.failed)} failed"
        if not rows:
            rows = ["nothing here is a checkpoint that another library wrote"]
        return "\n".join([*rows, f"{self.root}: {counts}, {len(self.ignored)} other files left alone"])

    def _repr_html_(self) -> str:
        """How a notebook shows it: what became of each."""
        rows = [
            *(("adopted", one.name, f"{_said(one.step)}, from {one.source}") for one in self.adopted),
            *(("present", name, "") for name in self.present),
            *(("failed", path, what) for path, what in self.failed.items()),
        ]
        notes = [f"{one.name}: {note}" for one in self.adopted for note in one.notes]
        return html_table(str(self).rpartition("\n")[2], ["", "checkpoint", ""], rows, remarks=notes)


def _said(step: int | None) -> str:
    return "no step" if step is None else f"step {step}"


def adopt(
    folder: str | os.PathLike[str], root: str | os.PathLike[str] | None = None, *, progress: Listen = None
) -> AdoptReport:
    """Take every checkpoint that Lightning, the Hugging Face Trainer, DCP or ``torch.save`` left below a folder.

    Each keeps its name, and its step and metrics where it tells them. Bytes are copied, and the folder is never
    changed. Whoever calls this again gets only what is new; a file that is torn, or cannot be read without running
    code, is named in the report, and the rest goes on.

    Args:
        folder: Where the trainer has saved.
        root: Where the checkpoints go; the folder itself by default.
        progress: Called as bytes come over; True shows a bar.

    Example:
        >>> import tempfile, torch, model_checkpoint as mc
        >>> from model_checkpoint.convert import adopt
        >>> folder = tempfile.mkdtemp()
        >>> torch.save({"w": torch.ones(2)}, f"{folder}/step-7.pt")
        >>> [one.name for one in adopt(folder).adopted], adopt(folder).present
        (['step-7'], ('step-7',))
        >>> mc.load(folder, step=7)
        {'w': tensor([1., 1.])}
    """
    require(progress=progress)
    source = Path(folder)
    if not source.is_dir():
        raise CheckpointNotFound(f"{folder}: is no folder. Name the one that the trainer saved to.", str(folder))
    target = os.fspath(folder if root is None else root)
    store = open_store(target)
    here = None if "://" in target else Path(target)
    found = find_checkpoints(source, here)
    adopted: list[Adopted] = []
    present: list[str] = []
    failed: dict[str, str] = {}
    with listening(progress, "adopting") as emit:
        sizes = {one.path: one.nbytes for one in found.checkpoints}
        meter = Meter("adopt", sum(sizes.values()), emit)
        for one in found.checkpoints:
            try:
                made = _adopted(one, store, target, meter.share(sizes[one.path]))
            except (CheckpointException, OSError) as error:
                log.error("%s: not adopted: %s", one.path, error)
                failed[str(one.path)] = f"{type(error).__name__}: {error}"
                continue
            if made is None:
                present.append(one.name)
            else:
                adopted.append(made)
    return AdoptReport(
        root=target, adopted=tuple(adopted), present=tuple(present), failed=failed, ignored=found.ignored
    )


def _adopted(one: TrainerCheckpoint, store: Store, root: str, emit: Emit) -> Adopted | None:
    """Adopt one; None if that was done before."""
    print_of = one.fingerprint()
    if store.exists() and store.has(one.name):
        _require_same(one, root, print_of)
        return None
    told = import_as(one.format, one.path)
    origin = {"from": str(one.path.absolute()), "format": one.format, "fingerprint": print_of}
    id = hashlib.sha256(f"{one.name} {print_of}".encode()).hexdigest()[:32]
    info = save_imported(told, one.path, root, name=one.name, metadata={_ADOPTED: origin}, id=id, progress=emit)
    return Adopted(
        source=str(one.path),
        format=one.format,
        name=info.prefix,
        step=info.step,
        metrics=dict(info.metrics),
        nbytes=info.size_bytes,
        notes=told.notes,
    )


def _require_same(one: TrainerCheckpoint, root: str, print_of: str) -> None:
    told = describe(f"{root}@{one.name}").info.metadata.get(_ADOPTED)
    if not isinstance(told, Mapping):
        raise StepExists(f"{root}: a checkpoint of another origin is called {one.name}. Adopt into another root.")
    if told.get("fingerprint") != print_of:
        raise SourceChanged(
            f"{one.path}: has changed since it was adopted as {one.name}, which is kept as it is. Delete {one.name} to "
            "adopt it anew, or adopt into another root.",
            str(one.path),
        )
