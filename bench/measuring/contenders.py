"""Contenders: one small class per library; each makes its save durable and loads into existing tensors.

A contender that cannot do a case, or not in reasonable time, says so with :class:`CannotDo`; the reason is printed.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Protocol

import torch

from bench.measuring.disk import flush_tree
from bench.measuring.states import Flat, State

logging.getLogger("torch.distributed").setLevel(logging.ERROR)
logging.getLogger("absl").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module=r"torch\.distributed.*")


class CannotDo(Exception):
    """A contender has no way to do this; the message says why."""


class Contender(Protocol):
    """A library that saves and loads."""

    name: str
    most_tensors: int  # beyond this it is left out

    def write(self, folder: Path, state: State) -> None:
        """Save by the library's own call alone, as its documentation shows it."""
        ...

    def save(self, folder: Path, state: State) -> None:
        """Save, and flush what the library leaves to its caller."""
        ...

    def load(self, folder: Path, live: State) -> None:
        """Load into the tensors of ``live``."""
        ...

    def rows(self, folder: Path, part: str, name: str, rows: slice) -> torch.Tensor:
        """Load only some rows of one tensor."""
        ...


class _Library:
    """What all have in common: a durable save is the library's own call, and a flush where it does not flush itself."""

    flushes = False

    def write(self, folder: Path, state: State) -> None:
        raise NotImplementedError

    def save(self, folder: Path, state: State) -> None:
        self.write(folder, state)
        if not self.flushes:
            flush_tree(folder)


class Ours(_Library):
    """This library: hashed while written, verified while loaded."""

    name = "model_checkpoint"
    most_tensors = 10_000_000
    flushes = True
    verify = "fast"

    def write(self, folder: Path, state: State) -> None:
        import model_checkpoint as mc

        mc.save(folder, state.nested, step=1)

    def load(self, folder: Path, live: State) -> None:
        import model_checkpoint as mc

        mc.load(folder, into=live.nested, verify=self.verify)

    def rows(self, folder: Path, part: str, name: str, rows: slice) -> torch.Tensor:
        import model_checkpoint as mc

        found: torch.Tensor = mc.load_slice(folder, f"{part}.{name}", rows)
        return found


class OursFull(Ours):
    """This library, comparing SHA-256 as well while loading."""

    name = "model_checkpoint, SHA-256 too"
    verify = "full"


class TorchSave(_Library):
    """torch.save and torch.load."""

    name = "torch.save"
    most_tensors = 1_000_000

    def write(self, folder: Path, state: State) -> None:
        torch.save(state.nested, folder / "state.pt")

    def load(self, folder: Path, live: State) -> None:
        saved = torch.load(folder / "state.pt", weights_only=True)
        for part, rows in live.nested.items():
            for name, tensor in rows.items():
                tensor.copy_(saved[part][name])

    def rows(self, folder: Path, part: str, name: str, rows: slice) -> torch.Tensor:
        saved = torch.load(folder / "state.pt", weights_only=True, mmap=True)
        found: torch.Tensor = saved[part][name][rows].clone()
        return found


class Safetensors(_Library):
    """safetensors.torch.save_file and load_file."""

    name = "safetensors"
    most_tensors = 1_000_000

    def write(self, folder: Path, state: State) -> None:
        from safetensors.torch import save_file

        save_file(state.flat, folder / "state.safetensors")

    def load(self, folder: Path, live: State) -> None:
        from safetensors.torch import load_file

        saved = load_file(folder / "state.safetensors")
        for name, tensor in live.flat.items():
            tensor.copy_(saved[name])

    def rows(self, folder: Path, part: str, name: str, rows: slice) -> torch.Tensor:
        from safetensors import safe_open

        with safe_open(folder / "state.safetensors", framework="pt") as file:
            found: torch.Tensor = file.get_slice(f"{part}/{name}")[rows].clone()
        return found


class Dcp(_Library):
    """torch.distributed.checkpoint, one process; it flushes its files, but not the folder that names them."""

    name = "DCP"
    most_tensors = 200_000

    def write(self, folder: Path, state: State) -> None:
        from torch.distributed import checkpoint

        checkpoint.save(state.nested, checkpoint_id=folder / "dcp", no_dist=True)

    def load(self, folder: Path, live: State) -> None:
        from torch.distributed import checkpoint

        checkpoint.load(live.nested, checkpoint_id=folder / "dcp", no_dist=True)

    def rows(self, folder: Path, part: str, name: str, rows: slice) -> torch.Tensor:
        from torch.distributed import checkpoint

        from bench.dcp_rows import RowsPlanner

        planner = RowsPlanner(f"{part}.{name}", rows)
        checkpoint.load({}, checkpoint_id=folder / "dcp", planner=planner, no_dist=True)
        return planner.found


class Orbax(_Library):
    """Orbax with NumPy leaves and its defaults (OCDBT, zstd); flushed afterwards like the others."""

    name = "Orbax"
    most_tensors = 20_000

    def write(self, folder: Path, state: State) -> None:
        self._checkpointer().save(folder / "orbax", _arrays(state))

    def load(self, folder: Path, live: State) -> None:
        saved = self._checkpointer().restore(folder / "orbax", _arrays(live))
        for part, rows in live.nested.items():
            for name, tensor in rows.items():
                tensor.copy_(torch.from_numpy(saved[part][name]))

    def rows(self, folder: Path, part: str, name: str, rows: slice) -> torch.Tensor:
        raise CannotDo("on one device its restore returns whole arrays")

    def _checkpointer(self):
        import orbax.checkpoint as ocp

        return ocp.Checkpointer(ocp.StandardCheckpointHandler())


def _arrays(state: State):
    return {part: {name: tensor.numpy() for name, tensor in rows.items()} for part, rows in state.nested.items()}


OURS: Contender = Ours()
OURS_FULL: Contender = OursFull()
PEERS: list[Contender] = [Safetensors(), Dcp(), TorchSave(), Orbax()]


def able(contenders: list[Contender], state: State) -> tuple[list[Contender], list[str]]:
    """Split off, with a printed reason, who would take unreasonably long for so many tensors."""
    count = len(state.flat)
    fit = [one for one in contenders if count <= one.most_tensors]
    notes = [
        f"{one.name} left out: takes minutes beyond {one.most_tensors:,} tensors, here are {count:,}"
        for one in contenders
        if one not in fit
    ]
    return fit, notes


__all__ = ["OURS", "OURS_FULL", "PEERS", "CannotDo", "Contender", "Flat", "able"]
