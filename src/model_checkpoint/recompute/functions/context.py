"""Context of a computation: random generators, autocast, grad mode, train flags, taken now and put back later.

Only what is already imported takes part: a program without torch or NumPy never loads them through this module.
"""

from __future__ import annotations

import pickle
import random
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomState:
    """States of the process-wide generators of Python, NumPy and torch (CPU and CUDA).

    Example:
        >>> import random
        >>> state = RandomState.capture()
        >>> first = random.random()
        >>> state.install()
        >>> random.random() == first
        True
    """

    python: tuple[int, bytes, float | None]
    numpy: bytes | None
    torch: bytes | None
    cuda: tuple[bytes, ...]

    @classmethod
    def capture(cls) -> RandomState:
        """Read the generators; they stay as they are."""
        version, words, gauss = random.getstate()
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        on_cuda = torch is not None and torch.cuda.is_initialized()
        return cls(
            python=(version, array("Q", words).tobytes(), gauss),
            numpy=None if numpy is None else pickle.dumps(numpy.random.get_state(legacy=False)),
            torch=None if torch is None else torch.get_rng_state().numpy().tobytes(),
            cuda=tuple(s.numpy().tobytes() for s in torch.cuda.get_rng_state_all()) if torch and on_cuda else (),
        )

    def install(self) -> None:
        """Set the generators to this state; one that was not there at capture is left alone."""
        version, words, gauss = self.python
        random.setstate((version, tuple(array("Q", words)), gauss))
        if self.numpy is not None:
            # these bytes were made by capture() above and never left the process
            sys.modules["numpy"].random.set_state(pickle.loads(self.numpy))
        if self.torch is not None:
            torch: Any = sys.modules["torch"]
            torch.set_rng_state(_byte_tensor(torch, self.torch))
            for index, state in enumerate(self.cuda):
                torch.cuda.set_rng_state(_byte_tensor(torch, state), index)


def _byte_tensor(torch: Any, data: bytes) -> Any:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Autocast:
    """Autocast of one device type."""

    device_type: str
    enabled: bool
    dtype: Any
    cache_enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadModes:
    """What torch keeps per thread: grad mode, inference mode and autocast; empty without torch.

    Example:
        >>> modes = ThreadModes.capture()
        >>> with modes.applied():
        ...     pass
    """

    grad: bool | None = None
    inference: bool = False
    autocast: tuple[Autocast, ...] = ()

    @classmethod
    def capture(cls) -> ThreadModes:
        """Read the modes of this thread."""
        torch = sys.modules.get("torch")
        if torch is None:
            return cls()
        devices = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
        return cls(
            grad=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            autocast=tuple(_read_autocast(torch, device) for device in devices),
        )

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Run the body under these modes; the thread's own return afterwards."""
        if self.grad is None:
            yield
            return
        torch: Any = sys.modules["torch"]
        with ExitStack() as stack:
            if torch.is_inference_mode_enabled() != self.inference:
                stack.enter_context(torch.inference_mode(self.inference))
            for mode in self.autocast:
                if mode != _read_autocast(torch, mode.device_type):
                    stack.enter_context(
                        torch.autocast(
                            mode.device_type, dtype=mode.dtype, enabled=mode.enabled, cache_enabled=mode.cache_enabled
                        )
                    )
            stack.enter_context(torch.set_grad_enabled(self.grad))  # last: inference mode sets it too
            yield


def _read_autocast(torch: Any, device: str) -> Autocast:
    return Autocast(
        device_type=device,
        enabled=torch.is_autocast_enabled(device),
        dtype=torch.get_autocast_dtype(device),
        cache_enabled=torch.is_autocast_cache_enabled(),
    )


def modules_held_by(function: Callable[..., Any]) -> list[Any]:
    """Torch modules a function visibly holds: itself, its owner, partial arguments, closure, globals it names.

    Example:
        >>> modules_held_by(lambda: 1)
        []
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    return [item for item in _reach(function) if isinstance(item, torch.nn.Module)]


def _reach(function: Any) -> Iterator[Any]:
    yield function
    if isinstance(function, partial):
        yield from _reach(function.func)
        yield from function.args
        yield from function.keywords.values()
        return
    yield getattr(function, "__self__", None)
    plain = getattr(function, "__func__", function)
    code = getattr(plain, "__code__", None)
    if code is None:
        return
    for cell in plain.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the variable is not assigned yet
            continue
    yield from (plain.__globals__[name] for name in code.co_names if name in plain.__globals__)


def train_flags(modules: Iterable[Any]) -> dict[Any, bool]:
    """The train flag of every given module and of all within it."""
    return {inner: inner.training for module in modules for inner in module.modules()}
