"""Context of a computation: random generators, autocast, grad mode, train flags, taken now and put back later.

Only what is already imported takes part: a program without torch or NumPy never loads them through this module.
"""

from __future__ import annotations

import pickle
import random
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

_AUTOCAST_DEVICES = ("cpu", "cuda")


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

    python: tuple[int, bytes, float | None] | None
    numpy: bytes | None
    torch: bytes | None
    cuda: tuple[bytes, ...]

    @classmethod
    def capture(cls, *, with_python: bool = True, with_torch: bool = True) -> RandomState:
        """Read the generators, or only Python's and NumPy's, or only torch's; they stay as they are."""
        numpy = sys.modules.get("numpy") if with_python else None
        torch = sys.modules.get("torch") if with_torch else None
        on_cuda = torch is not None and torch.cuda.is_initialized()
        return cls(
            python=_read_python() if with_python else None,
            numpy=None if numpy is None else pickle.dumps(numpy.random.get_state(legacy=False)),
            torch=None if torch is None else torch.get_rng_state().numpy().tobytes(),
            cuda=tuple(s.numpy().tobytes() for s in torch.cuda.get_rng_state_all()) if torch and on_cuda else (),
        )

    def install(self) -> None:
        """Set the generators to this state; one that was not captured is left alone."""
        if self.python is not None:
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


def _read_python() -> tuple[int, bytes, float | None]:
    version, words, gauss = random.getstate()
    return version, array("Q", words).tobytes(), gauss


def _byte_tensor(torch: Any, data: bytes) -> Any:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Autocast:
    """Autocast as it is on for one device type."""

    device_type: str
    dtype: Any
    cache_enabled: bool


def autocast_now() -> tuple[Autocast, ...]:
    """Where autocast is on in this thread, and how; empty when it is off.

    Example:
        >>> autocast_now()
        ()
    """
    torch = sys.modules.get("torch")
    if torch is None or not (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")):
        return ()
    return tuple(
        Autocast(
            device_type=device,
            dtype=torch.get_autocast_dtype(device),
            cache_enabled=torch.is_autocast_cache_enabled(),
        )
        for device in _AUTOCAST_DEVICES
        if torch.is_autocast_enabled(device)
    )


@contextmanager
def autocast_as(wanted: tuple[Autocast, ...]) -> Iterator[None]:
    """Run the body with autocast as ``wanted``, off where that names no device; the thread's own returns after it."""
    if not wanted and not autocast_now():
        yield
        return
    torch: Any = sys.modules["torch"]
    given = {one.device_type: one for one in wanted}
    with ExitStack() as stack:
        for device in _AUTOCAST_DEVICES:
            one = given.get(device)
            if one is not None:
                stack.enter_context(torch.autocast(device, dtype=one.dtype, cache_enabled=one.cache_enabled))
            elif torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


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
        return cls(grad=torch.is_grad_enabled(), inference=torch.is_inference_mode_enabled(), autocast=autocast_now())

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
            stack.enter_context(autocast_as(self.autocast))
            stack.enter_context(torch.set_grad_enabled(self.grad))  # last: inference mode sets it too
            yield


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


@contextmanager
def train_flags_as(flags: Mapping[Any, bool]) -> Iterator[None]:
    """Run the body with these train flags; those of now return after it."""
    current = {module: module.training for module in flags}
    for module, flag in flags.items():
        module.training = flag
    try:
        yield
    finally:
        for module, flag in current.items():
            module.training = flag
