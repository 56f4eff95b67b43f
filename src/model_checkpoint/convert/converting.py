"""Converting: one checkpoint from any format into any other, through ours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from model_checkpoint.convert.formats import NATIVE, format_of, import_as
from model_checkpoint.convert.sources.imported import Imported
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.common.option_checks import require
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.reading.export import Exported, export_file
from model_checkpoint.engine.root.refs import Reference, choose, parse_ref
from model_checkpoint.errors import CheckpointNotFound, OptionInvalid
from model_checkpoint.events import Emit
from model_checkpoint.plan import trainer_step

if TYPE_CHECKING:
    from model_checkpoint.engine.writing.save import Overwrite

_TARGETS = ("dcp", "pt", "safetensors", "hf", "orbax")


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What a conversion has made."""

    source: str
    source_format: str
    target: str  # where it lies: the folder of a checkpoint of ours, or what was asked for
    to: str
    files: tuple[str, ...] = ()  # that were written, if it is not one of ours
    tensors: int = 0
    nbytes: int = 0
    step: int | None = None
    metrics: Mapping[str, float] | None = None
    notes: tuple[str, ...] = ()  # what was left out, and why

    @property
    def ok(self) -> bool:
        """Always: what cannot be converted is raised."""
        return True

    def __str__(self) -> str:
        made = f"{self.target}: {self.to} from {self.source} ({self.source_format}), {self.nbytes} bytes"
        return "\n".join([made, *(f"  note   {note}" for note in self.notes)])


def convert(
    source: Reference,
    target: str | os.PathLike[str],
    *,
    to: str = NATIVE,
    part: str | None = None,
    step: int | None = None,
    name: str | None = None,
    metrics: Mapping[str, float] | None = None,
    metadata: Mapping[str, Any] | None = None,
    overwrite: Overwrite = False,
    progress: Listen = None,
) -> Converted:
    """Convert a checkpoint; the source is never changed, and nothing in a file of it is run.

    Args:
        source: A checkpoint of ours (a root, a reference, an info), a folder of DCP, of Hugging Face, of its Trainer or
            of Orbax, a ``.safetensors`` file, or a file of ``torch.save`` (``.pt``, ``.pth``, ``.ckpt``, ``.bin``).
        target: A root for ``to="native"``; else the file or folder to be, which must not exist.
        to: ``"native"``, ``"dcp"``, ``"pt"``, ``"safetensors"``, ``"hf"`` or ``"orbax"``.
        part: Only this part, such as ``"model"``, for ``"pt"``, ``"safetensors"`` and ``"hf"`` (there by default).
        step: Training step of the new checkpoint, if not the one the source tells.
        name: Folder name of the new checkpoint; by default that of its step, or of the source.
        metrics: Numbers to choose by later, beside those the source tells.
        metadata: Plain data to keep beside the state.
        overwrite: Replace a checkpoint of that name.
        progress: Called as bytes come and go; True shows a bar.

    Raises:
        SourceUnreadable: the source is torn, of an unknown format, or would have to run code.
        StepExists: the target is there already; nothing was written.

    Example:
        >>> import tempfile, torch, model_checkpoint as mc
        >>> from model_checkpoint.convert import convert
        >>> folder = tempfile.mkdtemp()
        >>> torch.save({"w": torch.ones(2)}, f"{folder}/step-7.pt")
        >>> convert(f"{folder}/step-7.pt", f"{folder}/run").step
        7
        >>> mc.load(f"{folder}/run")
        {'w': tensor([1., 1.])}
        >>> convert(f"{folder}/run@7", f"{folder}/dcp", to="dcp").tensors
        1
    """
    require(progress=progress)
    known = (NATIVE, *_TARGETS)
    if to not in known:
        raise OptionInvalid(f"to={to!r}: expected one of {', '.join(known)}. Nothing was done.")
    found = NATIVE if isinstance(source, CheckpointInfo) or not isinstance(source, (str, os.PathLike)) else None
    found = found or format_of(source)  # type: ignore[arg-type]
    said = source.path if isinstance(source, CheckpointInfo) else str(source)
    if to == NATIVE:
        if found == NATIVE:
            _require_there(said)
            choose(source)  # a folder without one of ours is told as that
            raise OptionInvalid(
                f"{said}: is a checkpoint of ours already. Say what to make of it, with to= or --to "
                f"({', '.join(_TARGETS)}). Nothing was done."
            )
        told = import_as(found, said)
        info = save_imported(
            told,
            Path(said),
            target,
            step=step,
            name=name,
            metrics=metrics,
            metadata=metadata,
            overwrite=overwrite,
            progress=progress,
        )
        return _report(said, found, told, info)
    with listening(progress, "converting") as emit:
        if found == NATIVE:
            return _exported(source, found, said, target, emit, to=to, part=part)
        with TemporaryDirectory(prefix=".converting-", dir=Path(target).absolute().parent) as room:
            between = save_imported(import_as(found, said), Path(said), room, step=step, name=name, progress=emit)
            return _exported(between, found, said, target, emit, to=to, part=part)


def save_imported(
    told: Imported,
    source: Path,
    root: str | os.PathLike[str],
    *,
    step: int | None = None,
    name: str | None = None,
    metrics: Mapping[str, float] | None = None,
    metadata: Mapping[str, Any] | None = None,
    overwrite: Overwrite = False,
    id: str | None = None,  # the name users know
    progress: Listen = None,
) -> CheckpointInfo:
    """Save what was imported, with what its source tells of it."""
    from model_checkpoint.distributed.coordinators.local import LocalCoordinator  # both bring NumPy
    from model_checkpoint.engine.writing.save import save

    step = next((one for one in (step, told.step, trainer_step(source.stem)) if one is not None), None)
    if name is None and step is None:
        name = plain_name(source.stem)
    return save(
        root,
        told.state,
        step=step,
        name=name,
        id=id,
        metrics={**told.metrics, **(metrics or {})},
        metadata={**told.metadata, **(metadata or {})},
        overwrite=overwrite,
        coordinator=LocalCoordinator(),
        progress=progress,
    )


def plain_name(text: str) -> str:
    """A name for a checkpoint made of any text.

    Example:
        >>> plain_name("epoch=1 step=20"), plain_name(".hidden")
        ('epoch_1_step_20', '_hidden')
    """
    made = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in text)[:120]
    return f"_{made[1:]}" if not made[:1].isalnum() else made


def _require_there(said: str) -> None:
    root = parse_ref(said).root
    if "://" not in root and not os.path.exists(root):
        raise CheckpointNotFound(f"{said}: nothing is there. Check the path. Nothing was done.")


def _report(said: str, found: str, told: Imported, info: CheckpointInfo) -> Converted:
    return Converted(
        source=said,
        source_format=found,
        target=info.path,
        to=NATIVE,
        nbytes=info.size_bytes,
        step=info.step,
        metrics=dict(info.metrics),
        notes=told.notes,
    )


def _exported(
    ref: Reference, found: str, said: str, target: str | os.PathLike[str], emit: Emit, *, to: str, part: str | None
) -> Converted:
    done = _export(ref, target, emit, to=to, part=part)
    return Converted(
        source=said,
        source_format=found,
        target=os.fspath(target),
        to=to,
        files=done.files,
        tensors=done.tensors,
        nbytes=done.nbytes,
    )


def _export(ref: Reference, target: str | os.PathLike[str], emit: Emit, *, to: str, part: str | None) -> Exported:
    """Write a checkpoint of ours in another format; what that needs is imported here and not before."""
    if to == "dcp":
        from model_checkpoint.convert.targets.dcp_export import export_dcp

        return export_dcp(ref, target, progress=emit)
    if to == "pt":
        from model_checkpoint.convert.targets.torch_export import export_torch

        return export_torch(ref, target, parts=part, progress=emit)
    if to == "hf":
        from model_checkpoint.convert.targets.huggingface_export import export_huggingface

        return export_huggingface(ref, target, part=part or "model", progress=emit)
    if to == "orbax":
        from model_checkpoint.convert.targets.orbax_export import export_orbax

        return export_orbax(ref, target, progress=emit)
    return export_file(ref, target, parts=part, progress=emit)
