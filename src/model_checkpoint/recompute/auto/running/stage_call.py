"""Stage call: one stage of a model, what it does besides computing, and the place where its call is taken over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any

from torch import nn

from model_checkpoint.recompute.auto.running.call_state import ModuleContext


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFacts:
    """What a stage does besides computing, found by running it once."""

    name: str
    linked: bool = True  # the next stage takes its output directly
    draws_python: bool = False  # draws from Python's or NumPy's generator
    draws: bool = False  # draws from torch's generator
    writes: tuple[int, ...] = ()  # tensor arguments it writes into
    buffers: tuple[str, ...] = ()  # buffers it changes
    collective: bool = False
    shared: bool = False  # its module is used by another stage too

    @property
    def quiet(self) -> bool:
        """Whether it touches nothing that belongs to the whole process, so that a worker may run it again."""
        return not (self.draws or self.draws_python or self.collective or self.shared)

    @property
    def repeatable(self) -> bool:
        """Whether it runs the same twice with nothing but its arguments and torch's generators put back."""
        return not (self.draws_python or self.writes or self.buffers or self.shared)


class StageCall:
    """One stage of the model: its module, and the call that was there before the patch."""

    __slots__ = ("facts", "index", "module", "name", "original", "surroundings", "writes")

    def __init__(self, index: int, facts: StageFacts, module: nn.Module) -> None:
        self.index, self.facts, self.module = index, facts, module
        self.name = facts.name
        self.writes = frozenset(facts.writes)
        self.original = plain_call(module)
        self.surroundings = ModuleContext(facts.name, module, buffers=facts.buffers, draws_python=facts.draws_python)


def plain_call(module: nn.Module) -> Callable[..., Any]:
    """The unpatched call of a module, hooks included."""
    return _plain(module, "_call_impl")


def _plain(module: nn.Module, name: str) -> Callable[..., Any]:
    return MethodType(getattr(type(module), name), module)


class Patch:
    """Stands in for ``_call_impl`` or ``forward`` of one module; a copy or pickle of it is what was there before."""

    def __init__(self, module: nn.Module, call: Callable[..., Any], *, name: str = "_call_impl") -> None:
        self.module, self.call, self.name = module, call, name
        self.before: Callable[..., Any] | None = module.__dict__.get(name)
        self.__wrapped__ = self.plain  # whoever asks for the signature of ``forward`` sees that of the model

    @property
    def plain(self) -> Callable[..., Any]:
        """What was there before."""
        return self.before or _plain(self.module, self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call whatever stands in."""
        return self.call(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_same, (self.before,)) if self.before is not None else (_plain, (self.module, self.name))

    def install(self) -> None:
        """Take the module's place."""
        self.module.__dict__[self.name] = self

    def remove(self) -> None:
        """Give the place back."""
        if self.module.__dict__.get(self.name) is not self:
            return
        if self.before is not None:
            self.module.__dict__[self.name] = self.before
        else:
            del self.module.__dict__[self.name]


def _same(value: Any) -> Any:
    return value
