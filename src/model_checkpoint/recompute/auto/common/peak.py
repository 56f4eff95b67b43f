"""Peak: count the bytes of every storage torch creates while a block of code runs.

Counts at the dispatcher, so recomputation and backward are seen; parameters, buffers, gradients and inputs are
excluded by the caller. Reproducible to the byte between runs of the same step on one thread.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

_COLLECTIVES = frozenset({"c10d", "_c10d_functional", "c10d_functional"})
_active: list[PeakTracker] = []


def active_tracker() -> PeakTracker | None:
    """The tracker at work, if any; background work then runs inline so that it is counted."""
    return _active[-1] if _active else None


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested lists, tuples and dicts.

    Example:
        >>> import torch
        >>> [t.shape[0] for t in tensors_in({"a": torch.ones(2), "b": [torch.ones(3), None]})]
        [2, 3]
    """
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


class PeakTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Live and peak bytes of the storages created inside the ``with`` block.

    Example:
        >>> import torch
        >>> with PeakTracker() as tracker:
        ...     kept = torch.ones(256).exp()
        >>> tracker.live, tracker.peak
        (1024, 2048)
    """

    def __init__(self, exclude: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0
        self.peak = 0
        self.collective = False
        self._sizes: dict[int, int] = {}
        self._excluded = {tensor.untyped_storage()._cdata for tensor in exclude}

    def __enter__(self) -> PeakTracker:
        _active.append(self)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)  # type: ignore[no-untyped-call]
        _active.remove(self)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation, then register the storages it made."""
        out = func(*args, **(kwargs or {}))
        if func.namespace in _COLLECTIVES:
            self.collective = True
        for tensor in tensors_in(out):
            self._register(tensor, args, kwargs)
        if self.live > self.peak:
            self.peak = self.live
        return out

    def reset_peak(self) -> None:
        """Let the peak start again from what is alive now."""
        self.peak = self.live

    def _register(self, tensor: Tensor, args: Any, kwargs: Any) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._sizes or key in self._excluded:
            return
        # a view of something made before we started is not ours
        if any(given.untyped_storage()._cdata == key for given in tensors_in([args, kwargs])):
            return
        size = storage.nbytes()
        self._sizes[key] = size
        self.live += size
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.live -= self._sizes.pop(key, 0)


def excluded_tensors(model: nn.Module, inputs: Any = ()) -> list[Tensor]:
    """What a budget does not count: parameters, buffers, their ``.grad`` and the inputs."""
    owned = [*model.parameters(), *model.buffers(), *tensors_in(inputs)]
    return owned + [tensor.grad for tensor in owned if tensor.is_leaf and tensor.grad is not None]


def measure_peak(model: nn.Module, step: Callable[[], object], inputs: Any = ()) -> int:
    """Run ``step`` twice and return the peak activation bytes of the second run.

    The first run lets every ``.grad`` exist, so that gradients are not counted; ``step`` must not set them to None.

    Example:
        >>> import torch
        >>> layer, x = nn.Linear(4, 4), torch.ones(2, 4)
        >>> measure_peak(layer, lambda: layer(x).sum().backward(), x) > 0
        True
    """
    step()
    gc.collect()
    with PeakTracker(excluded_tensors(model, inputs)) as tracker:
        step()
    return tracker.peak
