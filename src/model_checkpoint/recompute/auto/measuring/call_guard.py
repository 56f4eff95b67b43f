"""Call guard: look at each call of a planned model before it runs."""

from __future__ import annotations

import inspect
import warnings
from functools import partial
from typing import Any

import torch
from torch import nn

from model_checkpoint.recompute.auto.common.errors import AutoCheckpointWarning
from model_checkpoint.recompute.auto.measuring.sample import input_bytes
from model_checkpoint.recompute.auto.running.stage_call import Patch
from model_checkpoint.recompute.auto.running.torch_regions import guarded_forward, wrap_forward

_GROWTH = 1.1


def without_cache(model: nn.Module, sample_input: Any) -> Any:
    """Hugging Face models fill a cache by default, which a second run would fill again."""
    if not _caches(model):
        return sample_input
    if isinstance(sample_input, dict):
        return {**sample_input, "use_cache": False}
    names = list(inspect.signature(model.forward).parameters)
    given = sample_input if isinstance(sample_input, tuple) else (sample_input,)
    return {**dict(zip(names, given, strict=False)), "use_cache": False}


def _caches(model: nn.Module) -> bool:
    takes = "use_cache" in inspect.signature(model.forward).parameters
    return takes and bool(getattr(getattr(model, "config", None), "use_cache", False))


class CallGuard:
    """Looks at each call of the model before it runs; every warning is given once."""

    def __init__(self, model: nn.Module, planned: int) -> None:
        self._planned = planned
        self._caches = _caches(model)
        self._takes_cache = "use_cache" in inspect.signature(model.forward).parameters
        self._warned: set[str] = set()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments to call the model with; the compiler traces this too, without the warnings."""
        compiling = torch.compiler.is_compiling()
        if not compiling and self._planned and input_bytes(args, kwargs) > _GROWTH * self._planned:
            self._warn(
                f"input: {input_bytes(args, kwargs)} bytes, planned for {self._planned}; the peak will exceed the "
                "budget. Call auto_checkpoint again with a sample of this size."
            )
        if self._takes_cache and (kwargs.get("use_cache") or (self._caches and "use_cache" not in kwargs)):
            if not compiling:
                self._warn(
                    "use_cache: switched off while training with recomputation, as a second run would fill it again."
                )
            kwargs = {**kwargs, "use_cache": False}
        return kwargs

    def _warn(self, message: str) -> None:
        key = message.split(":", 1)[0]
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(message, AutoCheckpointWarning, stacklevel=5)


def guard(model: nn.Module, gate: CallGuard) -> Patch:
    """Put only the gate before a model; its layers run as they are."""
    patch = wrap_forward(model, partial(guarded_forward, gate))
    patch.install()
    return patch
