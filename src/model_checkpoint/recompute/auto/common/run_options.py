"""Run options: how a plan is executed, checked before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from model_checkpoint.recompute.auto.common.determinism import Determinism

EXECUTORS = ("native", "torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a plan is executed."""

    executor: str = "native"
    determinism: Determinism = Determinism.METADATA
    prefetch: bool = False
    offload: str | None = None
    spill_dir: str | Path | None = None

    @property
    def lanes(self) -> bool:
        """Whether something runs beside the main thread, so that only wall time tells how long a step takes."""
        return self.prefetch or self.offload is not None

    def check(self, model: nn.Module) -> None:
        """Refuse what cannot be done for this model, by name.

        Raises:
            ValueError: an option has no such value, does nothing here, or does not go with the executor.
        """
        if self.executor not in EXECUTORS:
            raise ValueError(f"executor: got {self.executor!r}, expected one of {', '.join(map(repr, EXECUTORS))}.")
        if self.offload not in (None, "disk", "host"):
            raise ValueError(f"offload: got {self.offload!r}, expected 'disk', 'host' or None.")
        if self.offload == "host" and all(p.device.type == "cpu" for p in model.parameters()):
            raise ValueError("offload: 'host' moves nothing for a model on the CPU. Use 'disk' or leave it out.")
        if self.executor == "torch":
            self._check_torch()

    def _check_torch(self) -> None:
        """What ``torch.utils.checkpoint`` does not have."""
        for name, value in (("prefetch", self.prefetch), ("offload", self.offload)):
            if value:
                raise ValueError(f"{name}: executor='torch' has none. Leave it out, or take executor='native'.")
        if self.determinism not in (Determinism.OFF, Determinism.METADATA):
            raise ValueError(
                f"determinism: executor='torch' compares metadata at most, got {self.determinism.value!r}. "
                "Take 'metadata' or 'off', or executor='native'."
            )
