"""States: what is saved and loaded, and a check that a load really brought it back."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

Flat = dict[str, torch.Tensor]
Nested = dict[str, dict[str, torch.Tensor]]

_SEPARATOR = "/"
_WIDTH = 768
_LAYERS = 12
_BLOCK = {
    "ln_1.weight": (_WIDTH,),
    "ln_1.bias": (_WIDTH,),
    "attn.c_attn.weight": (_WIDTH, 3 * _WIDTH),
    "attn.c_attn.bias": (3 * _WIDTH,),
    "attn.c_proj.weight": (_WIDTH, _WIDTH),
    "attn.c_proj.bias": (_WIDTH,),
    "ln_2.weight": (_WIDTH,),
    "ln_2.bias": (_WIDTH,),
    "mlp.c_fc.weight": (_WIDTH, 4 * _WIDTH),
    "mlp.c_fc.bias": (4 * _WIDTH,),
    "mlp.c_proj.weight": (4 * _WIDTH, _WIDTH),
    "mlp.c_proj.bias": (_WIDTH,),
}


@dataclass(frozen=True, slots=True)
class State:
    """One set of tensors, seen flat and seen as ``{part: {name: tensor}}``; both hold the same tensors."""

    flat: Flat
    nested: Nested

    @property
    def nbytes(self) -> int:
        """Payload."""
        return sum(tensor.nbytes for tensor in self.flat.values())

    def blank(self) -> State:
        """Other tensors of the same shapes, all zero, their memory present."""
        return _state({part: {k: torch.zeros_like(v) for k, v in rows.items()} for part, rows in self.nested.items()})

    def wipe(self) -> None:
        """Set everything to zero, so that the next load has something to prove."""
        for tensor in self.flat.values():
            tensor.zero_()

    def equals(self, other: State) -> bool:
        """Whether all names, shapes, dtypes and bits agree."""
        return self.flat.keys() == other.flat.keys() and all(
            mine.dtype == other.flat[name].dtype and torch.equal(mine, other.flat[name])
            for name, mine in self.flat.items()
        )


def _state(nested: Nested) -> State:
    flat = {f"{part}{_SEPARATOR}{name}": tensor for part, rows in nested.items() for name, tensor in rows.items()}
    return State(flat, nested)


def gpt2_small(scale: float) -> State:
    """A GPT-2-small training state in fp32: model and both Adam moments; ``scale`` thins the rows out."""
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (50257, _WIDTH), "wpe.weight": (1024, _WIDTH)}
    for layer in range(_LAYERS):
        shapes |= {f"h.{layer}.{name}": shape for name, shape in _BLOCK.items()}
    shapes |= {"ln_f.weight": (_WIDTH,), "ln_f.bias": (_WIDTH,)}
    shapes = {name: (max(1, round(shape[0] * scale)), *shape[1:]) for name, shape in shapes.items()}
    noise = torch.Generator().manual_seed(0)
    parts = ("model", "exp_avg", "exp_avg_sq")
    return _state({part: {k: torch.randn(shape, generator=noise) for k, shape in shapes.items()} for part in parts})


def many_small(count: int, elements: int) -> State:
    """``count`` tensors of ``elements`` floats, each with memory of its own, in parts of a thousand."""
    noise = torch.randn(count * elements, generator=torch.Generator().manual_seed(1)).split(elements)
    parts: Nested = {}
    for index, row in enumerate(noise):
        parts.setdefault(f"part{index // 1000}", {})[f"tensor{index}"] = row.clone()
    return _state(parts)


def one_large(nbytes: int, columns: int = 1024) -> State:
    """A single matrix of ``nbytes``."""
    rows = nbytes // (4 * columns)
    return _state({"model": {"embedding": torch.randn(rows, columns, generator=torch.Generator().manual_seed(2))}})


def describe(state: State) -> str:
    """One line on a state, for people."""
    elements = sum(prod(tensor.shape) for tensor in state.flat.values())
    return f"{len(state.flat):,} tensors, {elements:,} elements, {state.nbytes / 1e9:.2f} GB"
