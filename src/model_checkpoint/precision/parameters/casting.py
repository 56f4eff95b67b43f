"""Casting: which modules compute in FP32, and the hooks that cast at their borders.

One module computes in one dtype. It is FP32 when it is excluded, or when any parameter it uses must be FP32; weights
shared between modules join their fates. Around FP32 modules, forward hooks widen the inputs and narrow the outputs;
around the whole model they narrow the inputs and widen the outputs, so that the loss is computed in FP32. Layers in
reduced precision narrow their inputs too, for FP32 buffers and functions in between widen what flows.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn import Module, Parameter

from model_checkpoint.precision.parameters.ddp import DdpReplicas, find_active
from model_checkpoint.precision.settings.precision_manager import PrecisionManager
from model_checkpoint.tree.nodes.names import strip_wrappers

_CASTERS: WeakKeyDictionary[Module, ModelCaster] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class _Enter:
    """Casts what goes into a module; an object and not a closure, so that hooked models can be pickled."""

    dtype: torch.dtype

    def __call__(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        return cast_floats(args, self.dtype), cast_floats(kwargs, self.dtype)


@dataclass(frozen=True, slots=True)
class _Leave:
    """Casts what comes out of a module."""

    dtype: torch.dtype

    def __call__(self, module: Module, args: Any, output: Any) -> Any:
        return cast_floats(output, self.dtype)


@dataclass(frozen=True, slots=True)
class _NoticeWrapper:
    """Notices the DistributedDataParallel module a model is called by; stateless, for the same reason."""

    def __call__(self, module: Module, args: tuple[Any, ...]) -> None:
        wrapper, caster = find_active(), _CASTERS.get(module)
        if wrapper is not None and caster is not None:
            caster.replicas.notice(wrapper)


class ModelCaster:
    """Keeps a model's dtypes and hooks in agreement; optimizers that train one model share one caster.

    It holds no reference to the model or to any optimizer, so that both can be freed.
    """

    def __init__(self) -> None:
        self._forced: WeakKeyDictionary[Any, frozenset[int]] = WeakKeyDictionary()  # ids that must be FP32
        self._bound: WeakKeyDictionary[object, frozenset[int]] = WeakKeyDictionary()  # ids an optimizer trains
        self._originals: dict[int, tuple[torch.Tensor, int]] = {}
        self._handles: list[Any] = []
        self.replicas = DdpReplicas()

    @classmethod
    def of(cls, model: Module) -> ModelCaster:
        """The one caster of this model."""
        return _CASTERS.setdefault(model, cls())

    def force(self, owner: object, parameters: Iterable[int]) -> None:
        """Let an optimizer keep the parameters of these ids in FP32."""
        self._forced[owner] = frozenset(parameters)

    def find_peers(self, owner: object) -> list[Any]:
        """The other optimizers' tables of this model; their weights follow when a module they share changes."""
        return [one for one in self._forced if one is not owner]

    def find_fp32(self, model: Module, manager: PrecisionManager, *, forced: Iterable[int], owner: object) -> Set[int]:
        """Ids of all parameters that must be FP32 if ``owner`` forces these; what other optimizers force counts too."""
        units = _list_units(model)
        wide = set(forced).union(*(ids for one, ids in self._forced.items() if one is not owner))
        modules = {name for name, module, _ in units if is_excluded(name, module, manager)}
        while True:
            before = len(wide), len(modules)
            for name, _, parameters in units:
                if name in modules:
                    wide.update(map(id, parameters))
                elif any(id(parameter) in wide for parameter in parameters):
                    modules.add(name)
            if before == (len(wide), len(modules)):
                return wide

    @torch.no_grad()
    def cast_others(self, model: Module, *, wide: Set[int], target: torch.dtype) -> None:
        """Give parameters no optimizer of ours trains the dtype of their module.

        The FP32 values of those that may be trained are kept, in case another optimizer binds them later.
        """
        bound = frozenset().union(*self._bound.values())
        for _, _, parameters in _list_units(model):
            for parameter in parameters:
                dtype = torch.float32 if id(parameter) in wide else target
                if id(parameter) in bound or parameter.dtype == dtype:
                    continue
                if parameter.requires_grad and parameter.dtype == torch.float32:
                    self._originals[id(parameter)] = (parameter.data, parameter._version)
                parameter.data = parameter.data.to(dtype)

    def bind(self, owner: object, parameters: Iterable[Parameter]) -> None:
        """Let an optimizer take charge of the dtype of these parameters."""
        self._bound[owner] = self._bound.get(owner, frozenset()) | {id(one) for one in parameters}

    def is_bound(self, parameter: Parameter) -> bool:
        """Whether any optimizer of ours is in charge of this parameter."""
        return any(id(parameter) in ids for ids in self._bound.values())

    def take_original(self, parameter: Parameter) -> torch.Tensor | None:
        """The FP32 values of a parameter that was cast before an optimizer bound it; None when it changed since."""
        kept, version = self._originals.pop(id(parameter), (None, -1))
        return kept if version == parameter._version else None

    def place_hooks(self, model: Module, manager: PrecisionManager, *, flow: torch.dtype, cast_io: bool) -> None:
        """Renew all hooks for activations that flow in ``flow`` between modules."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for name, module, parameters in _list_units(model):
            dtype = _unit_dtype(name, module, parameters, manager)
            if dtype is not None and dtype != flow:
                self._hook(module, inside=dtype, outside=flow)
            elif dtype is not None and module is not model and _is_layer(module):
                self._handles.append(module.register_forward_pre_hook(_Enter(dtype), with_kwargs=True, prepend=True))
        if cast_io:
            self._hook(model, inside=flow, outside=torch.float32)
        self._handles.append(model.register_forward_pre_hook(_NoticeWrapper()))
        self.replicas.follow(model)

    def _hook(self, module: Module, *, inside: torch.dtype, outside: torch.dtype) -> None:
        # the border of the model is hooked last: it enters first and leaves last
        self._handles.append(module.register_forward_pre_hook(_Enter(inside), with_kwargs=True, prepend=True))
        self._handles.append(module.register_forward_hook(_Leave(outside)))


def _list_units(model: Module) -> list[tuple[str, Module, list[Parameter]]]:
    return [(name, module, _used_parameters(module)) for name, module in model.named_modules()]


def is_excluded(name: str, module: Module, manager: PrecisionManager) -> bool:
    """Whether a module stays in FP32 by its class or its qualified name; containers are judged by their parts."""
    if not _is_layer(module):
        return False
    names = (type(module).__name__, strip_wrappers(name + ".").rstrip("."))
    return any(manager.should_exclude_layer(one) for one in names)


def _is_layer(module: Module) -> bool:
    """Whether the module is one unit of computation and no container."""
    return isinstance(module, torch.nn.MultiheadAttention) or not any(True for _ in module.children())


def _used_parameters(module: Module) -> list[Parameter]:
    """What the module's own forward touches; attention reaches into its output projection without calling it."""
    deep = isinstance(module, torch.nn.MultiheadAttention)
    return [one for one in module.parameters(recurse=deep) if one.is_floating_point()]


def _unit_dtype(
    name: str, module: Module, parameters: list[Parameter], manager: PrecisionManager
) -> torch.dtype | None:
    if is_excluded(name, module, manager):
        return torch.float32
    return parameters[0].dtype if parameters else None


def cast_floats(value: Any, dtype: torch.dtype) -> Any:
    """The same structure with every FP32 or half tensor in ``dtype``; everything else untouched.

    Example:
        >>> cast_floats({"x": torch.ones(1), "ids": torch.tensor([1])}, torch.float16)
        {'x': tensor([1.], dtype=torch.float16), 'ids': tensor([1])}
    """
    if isinstance(value, torch.Tensor):
        narrow = value.dtype in (torch.float32, torch.float16, torch.bfloat16)
        return value.to(dtype) if narrow and value.dtype != dtype else value
    if isinstance(value, tuple):
        parts = [cast_floats(one, dtype) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [cast_floats(one, dtype) for one in value]
    if type(value) is dict:
        return {key: cast_floats(one, dtype) for key, one in value.items()}
    if isinstance(value, dict):
        result = copy.copy(value)  # a subclass, such as the output of a transformers model
        for key, one in value.items():
            result[key] = cast_floats(one, dtype)
        return result
    return value
