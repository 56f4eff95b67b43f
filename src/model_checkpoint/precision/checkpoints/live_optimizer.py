"""Live optimizer: what a checkpoint is taken of and put back into, seen from here."""

from __future__ import annotations

from typing import Protocol

import torch

from model_checkpoint.precision.parameters.parameter_table import ParameterTable
from model_checkpoint.precision.scaling.scaler import DynamicLossScaler
from model_checkpoint.precision.settings.number_formats import Precision
from model_checkpoint.precision.settings.precision_options import MixedPrecisionOptions
from model_checkpoint.precision.stepping.session import Session


class LiveOptimizer(Protocol):
    """What capture, checks and restore need of :class:`~model_checkpoint.precision.MixedPrecisionOptimizer`."""

    @property
    def base_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer that owns the masters."""
        ...

    @property
    def options(self) -> MixedPrecisionOptions:
        """The options it was made with."""
        ...

    @property
    def target_precision(self) -> Precision:
        """The precision trained in while not fallen back."""
        ...

    @property
    def scaler(self) -> DynamicLossScaler:
        """The loss scaler."""
        ...

    @property
    def session(self) -> Session:
        """Counters, modes and timeline."""
        ...

    @property
    def parameter_table(self) -> ParameterTable:
        """The trained parameters with their masters and names."""
        ...

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients and the losses they came from."""
        ...

    def forget_map(self) -> None:
        """Build the weight maps anew at the next look."""
        ...
