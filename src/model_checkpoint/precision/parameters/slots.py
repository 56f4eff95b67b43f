"""Slots: each trained parameter beside its FP32 master, with all its names.

Invariant: parameter objects are never replaced, only their data, so that tied weights, DDP and compiled modules keep
pointing at the right thing. The base optimizer owns the masters; an FP32 parameter is its own master.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch.nn import Module, Parameter

from model_checkpoint.precision.errors import InvalidArgument, WeightsChanged
from model_checkpoint.tree.nodes.names import strip_wrappers

_HALVES = (torch.float16, torch.bfloat16)


class ParameterSlot:
    """One trained parameter: names (first is canonical), the tensor the model uses, and its master."""

    __slots__ = ("_stamp", "group", "master", "names", "param")

    def __init__(self, *, names: tuple[str, ...], param: Parameter, master: Parameter, group: int) -> None:
        self.names, self.param, self.master, self.group = names, param, master, group
        self._stamp: tuple[int, int, torch.dtype]
        self.mark()

    @property
    def name(self) -> str:
        """The name it is stored under."""
        return self.names[0]

    @property
    def is_own_master(self) -> bool:
        """Whether the model's parameter itself is what the base optimizer steps."""
        return self.master is self.param

    @property
    def is_reduced(self) -> bool:
        """Whether the model computes with a half copy now."""
        return self.param.dtype in _HALVES

    def mark(self) -> None:
        """Remember the training weight as it is; a later write by someone else will show."""
        self._stamp = self._look()

    def _look(self) -> tuple[int, int, torch.dtype]:
        # an FP32 weight shares its master's storage, so writing to it is no harm, only moving it is
        version = self.param._version if self.is_reduced else 0
        return (version, self.param.data_ptr(), self.param.dtype)

    @property
    def is_changed(self) -> bool:
        """Whether someone wrote, moved or converted the training weight since :meth:`mark`."""
        return not self.is_own_master and self._stamp != self._look()

    def is_still_cast(self) -> bool:
        """Whether the weight, though written, is the cast of its master; then it is marked anew."""
        same = self.param.dtype == self._stamp[2] and torch.equal(self.param, self.master.to(self.param.dtype))
        if same:
            self.mark()
        return same

    @torch.no_grad()
    def cast_down(self) -> None:
        """Write the training weight from its master; tell autograd that it changed."""
        if self.is_reduced:
            self.param.copy_(self.master)
        self.mark()

    @torch.no_grad()
    def use_dtype(self, dtype: torch.dtype) -> None:
        """Let the model compute in ``dtype``: a cast of the master, or the master's own storage for FP32."""
        if dtype == self.param.dtype:
            return
        if self.is_own_master:
            self.master = Parameter(self.param.detach(), requires_grad=self.param.requires_grad)
        self.param.grad = None  # consumed; its dtype may not fit any more
        self.param.data = self.master.data if dtype == torch.float32 else self.master.data.to(dtype)
        self.mark()


def name_parameters(model: Module | None) -> dict[int, tuple[str, ...]]:
    """All names of each parameter by object id, wrapper prefixes stripped, in the model's order.

    Example:
        >>> layer = torch.nn.Linear(2, 2)
        >>> list(name_parameters(torch.nn.ModuleDict({"module": layer})).values())
        [('weight',), ('bias',)]
    """
    names: dict[int, tuple[str, ...]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False) if model is not None else ():
        plain = strip_wrappers(name)
        known = names.get(id(parameter), ())
        if plain not in known:
            names[id(parameter)] = (*known, plain)
    _require_unique([name for group in names.values() for name in group])
    return names


def _require_unique(names: Sequence[str]) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InvalidArgument(
            f"model: after stripping wrapper prefixes several parameters are called {twice[:3]}. Rename a submodule."
        )


def bind_group(
    group: dict[str, object], place: int, *, known_names: dict[int, tuple[str, ...]], taken: Iterable[str]
) -> list[ParameterSlot]:
    """Make slots for one parameter group of the base; nothing is cast yet.

    Names come from the model, else from the group (``named_parameters`` given to the optimizer), else by position.
    """
    parameters: list[Parameter] = list(group["params"])  # type: ignore[call-overload]
    given = group.get("param_names")
    slots, used = [], set(taken)
    for order, parameter in enumerate(parameters):
        own = (strip_wrappers(given[order]),) if isinstance(given, list) else (f"group{place}.param{order}",)
        names = known_names.get(id(parameter), own)
        if names[0] in used:
            raise InvalidArgument(f"{names[0]}: two parameters have this name. Pass model=, or named parameters.")
        used.add(names[0])
        _require_trainable(names[0], parameter)
        slots.append(ParameterSlot(names=names, param=parameter, master=parameter, group=place))
    return slots


def _require_trainable(name: str, parameter: Parameter) -> None:
    if parameter.dtype not in (torch.float32, *_HALVES):
        raise InvalidArgument(
            f"{name}: dtype is {parameter.dtype}, expected float32, float16 or bfloat16. "
            "Convert the model with .float() before making the optimizer."
        )
    if hasattr(parameter, "placements"):
        raise InvalidArgument(
            f"{name}: is sharded over processes ({type(parameter.data).__name__}), expected a whole tensor. "
            "Use the mixed precision of what shards it (mp_policy= of fully_shard), or replicate the model as DDP does."
        )


@torch.no_grad()
def make_master(slot: ParameterSlot, original: torch.Tensor | None = None) -> None:
    """Give a half parameter its FP32 master: the original values where they were kept, else its exact upcast."""
    if slot.is_reduced:
        values = slot.param.detach().float() if original is None else original
        slot.master = Parameter(values, requires_grad=slot.param.requires_grad)


def require_unchanged(slots: Iterable[ParameterSlot]) -> None:
    """Raise :class:`WeightsChanged` when any training weight was written by someone else."""
    changed = [slot.name for slot in slots if slot.is_changed and not slot.is_still_cast()]
    if changed:
        raise WeightsChanged(
            f"{changed[0]}: the training weights of {len(changed)} parameters changed outside the optimizer "
            "(model.load_state_dict, an in-place edit or .to()). Their FP32 masters would overwrite that at the next "
            "step. Call opt.sync_from_model() to take the new weights over, or opt.set_parameters() with FP32 ones."
        )
