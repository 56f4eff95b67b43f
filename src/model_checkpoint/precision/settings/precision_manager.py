"""PrecisionManager: which layers train in reduced precision, and the two copies of their weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import overload

import torch

from model_checkpoint.precision.errors import InvalidArgument
from model_checkpoint.precision.settings.number_formats import Precision
from model_checkpoint.precision.settings.precision_options import FOR_FP16, SENSITIVE_LAYERS, MixedPrecisionOptions

Weights = dict[str, torch.Tensor]


class PrecisionManager:
    """Decides per layer between the target precision and FP32.

    A layer is excluded when a pattern equals its name, is contained in it, or matches it as a regular expression,
    all without regard to case. A pattern that is no valid expression still matches by the first two rules.

    Example:
        >>> manager = PrecisionManager(MixedPrecisionOptions.for_fp16())
        >>> manager.should_exclude_layer("block.LayerNorm_1"), manager.should_exclude_layer("block.linear")
        (True, False)
    """

    def __init__(self, options: MixedPrecisionOptions | None = FOR_FP16) -> None:
        if options is None:
            raise InvalidArgument("precision manager: options is None. Pass MixedPrecisionOptions().")
        self._options = options
        self._target = options.resolve_precision()
        defaults = (*SENSITIVE_LAYERS, "Embedding") if options.auto_exclude_sensitive_layers else ()
        patterns = dict.fromkeys((*defaults, *options.fp32_layer_patterns))
        self._patterns: dict[str, re.Pattern[str] | None] = {one: _compile(one) for one in patterns}

    @property
    def target_precision(self) -> Precision:
        """The precision layers train in unless excluded."""
        return self._target

    @property
    def is_reduced_precision(self) -> bool:
        """Whether the target is anything but FP32."""
        return self._target.is_reduced

    @property
    def excluded_layer_count(self) -> int:
        """How many exclusion patterns there are."""
        return len(self._patterns)

    def should_exclude_layer(self, layer_name: str | None) -> bool:
        """Whether the layer of that name (or class) stays in FP32; a blank name never is excluded."""
        if layer_name is None or not layer_name.strip():
            return False
        return any(_matches(pattern, compiled, layer_name) for pattern, compiled in self._patterns.items())

    def exclude_layers_matching(self, pattern: str) -> None:
        """Keep layers that match ``pattern`` in FP32 from now on."""
        if pattern is None or not pattern.strip():
            raise InvalidArgument(
                f"exclude_layers_matching: pattern is {pattern!r}. Pass a name, part of one or regex."
            )
        self._patterns[pattern] = _compile(pattern)

    def remove_exclusion(self, pattern: str) -> bool:
        """Forget one pattern; returns whether it was there."""
        known = pattern in self._patterns
        self._patterns.pop(pattern, None)
        return known

    def clear_exclusions(self) -> None:
        """Forget all patterns, the default ones too."""
        self._patterns.clear()

    def get_exclusion_patterns(self) -> list[str]:
        """The patterns, in the order they were added."""
        return list(self._patterns)

    def convert_to_training_precision(self, tensor: torch.Tensor, layer_name: str | None = None) -> torch.Tensor:
        """The tensor as the layer of that name uses it; the same object when nothing changes."""
        if tensor is None:
            raise InvalidArgument("convert_to_training_precision: tensor is None. Pass the weight to convert.")
        return tensor.float() if self.should_exclude_layer(layer_name) else tensor.to(self._target.dtype)

    @overload
    def convert_to_fp32(self, tensor: torch.Tensor) -> torch.Tensor: ...
    @overload
    def convert_to_fp32(self, tensor: Mapping[str, torch.Tensor]) -> Weights: ...
    def convert_to_fp32(self, tensor: torch.Tensor | Mapping[str, torch.Tensor]) -> torch.Tensor | Weights:
        """One tensor or a mapping of them in FP32."""
        if tensor is None:
            raise InvalidArgument("convert_to_fp32: got None. Pass a tensor or a mapping of name to tensor.")
        if isinstance(tensor, torch.Tensor):
            return tensor.float()
        return {name: value.float() for name, value in tensor.items()}

    def convert_weights(self, weights: Mapping[str, torch.Tensor]) -> Weights:
        """Each weight in the precision its layer trains in."""
        _require_weights(weights, "convert_weights")
        return {name: self.convert_to_training_precision(value, name) for name, value in weights.items()}

    def create_master_weights(self, weights: Mapping[str, torch.Tensor]) -> Weights:
        """Separate FP32 copies, never aliases of what was given."""
        _require_weights(weights, "create_master_weights")
        return {name: value.detach().to(torch.float32, copy=True) for name, value in weights.items()}

    def sync_training_weights(self, master_weights: Mapping[str, torch.Tensor]) -> Weights:
        """The training weights that belong to these masters."""
        return self.convert_weights(master_weights)


def _compile(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error:
        return None


def _matches(pattern: str, compiled: re.Pattern[str] | None, name: str) -> bool:
    if pattern.lower() in name.lower():  # contains; equality is a case of it
        return True
    return compiled is not None and compiled.search(name) is not None


def _require_weights(weights: object, where: str) -> None:
    if weights is None:
        raise InvalidArgument(f"{where}: weights is None. Pass a mapping of name to tensor.")
