"""Saved: one tensor that backward will ask for, either held or to be rebuilt from others."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from model_checkpoint.recompute.auto.common.errors import ValueChanged


class Recipe:
    """How to make a tensor again from tensors that are held anyway; the result is shared while someone uses it."""

    __slots__ = ("_build", "_shared", "draws", "version")

    def __init__(self, build: Callable[[], Tensor], *, version: int, draws: bool = False) -> None:
        self._build = build
        self._shared: weakref.ref[Tensor] | None = None
        self.version = version
        self.draws = draws  # sets the generators, which belong to the whole process

    def make(self) -> Tensor:
        """Return the tensor, rebuilt unless a former result is still in use."""
        value = self._shared() if self._shared is not None else None
        if value is None:
            with torch.no_grad():
                value = self._build()
            self._shared = weakref.ref(value)
        return value


class Saved:
    """A tensor as autograd left it: held (and checked for in-place changes) or replaced by a recipe."""

    __slots__ = ("geometry", "recipe", "tensor", "version")

    def __init__(self, tensor: Tensor) -> None:
        # detached: holding an output with its history would keep the graph alive for ever
        self.tensor: Tensor | None = tensor.detach()
        self.version = tensor._version
        self.recipe: Recipe | None = None
        self.geometry: tuple[torch.Size, tuple[int, ...], int] | None = None

    def replace_by(self, recipe: Recipe) -> None:
        """Let the bytes go and remember only how to have them again."""
        if self.tensor is None:
            return
        self.geometry = (self.tensor.size(), self.tensor.stride(), int(self.tensor.storage_offset()))
        self.recipe, self.tensor = recipe, None

    @property
    def draws(self) -> bool:
        """Whether random numbers must be drawn to have the tensor again."""
        return self.recipe is not None and self.recipe.draws

    def open(self, where: object = "saved tensor") -> Tensor:
        """Give the tensor back.

        Raises:
            ValueChanged: somebody wrote into it since.
        """
        if self.recipe is not None and self.geometry is not None:
            value = self.recipe.make()
            if (value.size(), value.stride(), value.storage_offset()) == self.geometry:
                return value
            return value.as_strided(*self.geometry)
        assert self.tensor is not None
        if self.tensor._version != self.version:
            raise ValueChanged(
                f"{where}: a tensor of shape {tuple(self.tensor.shape)} was changed in place after the forward pass, "
                f"version {self.tensor._version}, expected {self.version}. Use the out-of-place operation there."
            )
        return self.tensor
