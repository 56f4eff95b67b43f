"""Call state: remember the surroundings of one layer call, and put them back for its second run.

Surroundings are what a forward reads besides its arguments: random generators, autocast, train flags, buffers.
Generators are kept only if the call drew from them; buffers the call changes are replayed on copies, so the second run
starts from the old value and leaves the current one alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from model_checkpoint.recompute.auto.common.errors import ValueChanged
from model_checkpoint.recompute.common.context import RandomState, autocast_as, autocast_now, train_flags_as

_NOTHING = nullcontext()
_ROUND = 64  # a pickled state is a few bytes longer or shorter from draw to draw; peaks must not be


class ModuleContext:
    """What one module reads besides its arguments; gathered once per stage."""

    __slots__ = ("buffers", "devices", "draws_python", "modules", "name", "parameters", "profiled")

    def __init__(self, name: str, module: nn.Module, *, buffers: Sequence[str], draws_python: bool) -> None:
        self.name = name
        self.modules = list(module.modules())
        self.parameters = list(module.parameters())
        self.devices = sorted({p.device.index for p in self.parameters if p.device.type == "cuda"})
        self.buffers = [_owner(module, path) for path in buffers]
        self.draws_python = draws_python
        self.profiled = tuple(m.training for m in self.modules)

    def watched(self, training: tuple[bool, ...]) -> list[tuple[nn.Module, str]]:
        """The buffers a call may change; all of them when train flags differ from those profiled."""
        if training == self.profiled:
            return self.buffers
        return [(m, name) for m in self.modules for name, value in m._buffers.items() if value is not None]


def _owner(module: nn.Module, path: str) -> tuple[nn.Module, str]:
    prefix, _, name = path.rpartition(".")
    return module.get_submodule(prefix), name


def _counted(data: bytes) -> Tensor:
    """Bytes as a tensor that was made by the dispatcher: a tracker does not see those made from data."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).clone() if data else torch.empty(0, dtype=torch.uint8)


class PythonGenerators:
    """The state of Python's and NumPy's generators, held in tensors so that a tracker counts it."""

    __slots__ = ("_numpy", "_python", "_rest")

    def __init__(self) -> None:
        state = RandomState.capture(with_torch=False)
        assert state.python is not None
        version, words, gauss = state.python
        numpy = state.numpy or b""
        padded = numpy.ljust(-(-len(numpy) // _ROUND) * _ROUND, b"\0")  # what follows a pickle is not read
        self._python, self._numpy, self._rest = _counted(words), _counted(padded), (version, gauss)

    def restore(self) -> None:
        """Set both generators back to this state."""
        version, gauss = self._rest
        words, numpy = self._python.numpy().tobytes(), self._numpy.numpy().tobytes()
        RandomState(python=(version, words, gauss), numpy=numpy or None, torch=None, cuda=()).install()


class CallState:
    """The surroundings of one call as they were before it."""

    __slots__ = ("autocast", "buffers", "cuda", "of", "python", "rng", "seconds", "training", "versions")

    def __init__(self, of: ModuleContext) -> None:
        self.of = of
        self.seconds = 0.0
        self.training = tuple([m.training for m in of.modules])
        self.versions = [p._version for p in of.parameters]
        self.autocast = autocast_now()
        # as tensors, which a tracker counts, and of the devices of this module alone, since every forward pays for it
        self.rng: Tensor | None = torch.default_generator.get_state()
        self.cuda = [(index, torch.cuda.get_rng_state(index)) for index in of.devices]
        self.python = PythonGenerators() if of.draws_python else None
        # clones go through the dispatcher, so that a tracker counts them
        self.buffers = [(m, name, m._buffers[name].clone()) for m, name in of.watched(self.training)]  # type: ignore[union-attr]

    def settle(self) -> None:
        """Forget the generators the call did not use."""
        if self.rng is not None:
            now = torch.default_generator.get_state()
            used = self.rng.numpy().tobytes() != now.numpy().tobytes()  # sooner than torch.equal
            self.rng = self.rng.clone() if used else None
        if self.cuda:
            self.cuda = [(i, s) for i, s in self.cuda if not torch.equal(s, torch.cuda.get_rng_state(i))]

    @property
    def draws(self) -> bool:
        """Whether the call drew random numbers."""
        return self.rng is not None or bool(self.cuda) or self.python is not None

    def is_plain(self) -> bool:
        """Whether the surroundings now are those of the first call, so that nothing has to be put back."""
        return (
            self.rng is None
            and self.python is None
            and not self.buffers
            and not self.cuda
            and not self.autocast
            and not autocast_now()
            and self.training == tuple([m.training for m in self.of.modules])
        )

    def check(self) -> None:
        """Refuse to recompute from parameters that were changed since the forward pass."""
        check_unchanged(self.of.name, self.of.parameters, self.versions)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Run the block as the first call ran; everything but the generators is put back after it."""
        with ExitStack() as stack:
            stack.enter_context(autocast_as(self.autocast))
            if tuple([m.training for m in self.of.modules]) != self.training:
                stack.enter_context(train_flags_as(dict(zip(self.of.modules, self.training, strict=True))))
            if self.buffers:
                stack.enter_context(_old_buffers(self.buffers))
            self._set_generators()
            yield

    def _set_generators(self) -> None:
        if self.rng is not None:
            torch.default_generator.set_state(self.rng)
        for index, state in self.cuda:
            torch.cuda.set_rng_state(state, index)
        if self.python is not None:
            self.python.restore()


def check_unchanged(name: str, parameters: Sequence[Tensor], versions: Sequence[int]) -> None:
    """Refuse to compute again with parameters of other versions than in the first run.

    Raises:
        ValueChanged: the first that was written into is named.
    """
    if versions == [parameter._version for parameter in parameters]:
        return
    for number, (parameter, version) in enumerate(zip(parameters, versions, strict=True)):
        if parameter._version != version:
            raise ValueChanged(
                f"{name}: parameter {number} (shape {tuple(parameter.shape)}) was changed in place between "
                f"forward and backward, version {parameter._version}, expected {version}. "
                "Call backward before the optimizer step."
            )


@contextmanager
def _old_buffers(saved: list[tuple[nn.Module, str, Tensor]]) -> Iterator[None]:
    """Put copies of the old values in place of the buffers; the buffers themselves are never written."""
    current = [module._buffers[name] for module, name, _ in saved]
    for module, name, old in saved:
        module._buffers[name] = old.clone()
    try:
        yield
    finally:
        for (module, name, _), value in zip(saved, current, strict=True):
            module._buffers[name] = value


def generators_kept(states: Sequence[CallState]) -> AbstractContextManager[None]:
    """Leave every generator that ``states`` will set as it is now."""
    return _generators_kept(states) if any(state.draws for state in states) else _NOTHING


@contextmanager
def _generators_kept(states: Sequence[CallState]) -> Iterator[None]:
    now = RandomState.capture(with_python=any(state.python is not None for state in states))
    try:
        yield
    finally:
        now.install()
