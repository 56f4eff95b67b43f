"""Parameter table: all trained parameters of one optimizer, kept in the precision their group is in."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Set
from typing import Any

import torch
from torch.nn import Module, Parameter

from model_checkpoint.precision.errors import InvalidArgument, UnknownParameter, UnsupportedOptimizer, WeightsChanged
from model_checkpoint.precision.gradients.conversion import require_tensors
from model_checkpoint.precision.parameters.casting import ModelCaster
from model_checkpoint.precision.parameters.slots import (
    ParameterSlot,
    bind_group,
    make_master,
    name_parameters,
    require_unchanged,
)
from model_checkpoint.precision.settings.precision_manager import PrecisionManager
from model_checkpoint.precision.settings.precision_options import MixedPrecisionOptions
from model_checkpoint.tree.nodes.names import strip_wrappers

Work = list[tuple[ParameterSlot, torch.Tensor]]
_LOG = logging.getLogger("model_checkpoint.precision")


class ParameterTable:
    """The slots of one base optimizer, and the model they belong to, if it was given."""

    def __init__(
        self,
        base: torch.optim.Optimizer,
        *,
        model: Module | None,
        manager: PrecisionManager,
        options: MixedPrecisionOptions,
    ) -> None:
        self.base, self.model, self.manager, self.options = base, model, manager, options
        self.slots: list[ParameterSlot] = []
        self._fp32_groups: frozenset[int] = frozenset()
        self.is_by_name = False  # parameters were adopted from a mapping, so gradients come by name too
        self._caster = ModelCaster() if model is None else ModelCaster.of(model)
        self._homes: list[tuple[dict[str, Any], str, Parameter]] = []
        for place in range(len(base.param_groups)):
            self.bind(place)

    @property
    def group_count(self) -> int:
        """How many parameter groups the base has."""
        return len(self.base.param_groups)

    @property
    def by_name(self) -> dict[str, ParameterSlot]:
        """Every slot under each of its names."""
        return {name: slot for slot in self.slots for name in slot.names}

    @property
    def reduced_groups(self) -> frozenset[int]:
        """Groups of which any parameter is trained in reduced precision now."""
        return frozenset(slot.group for slot in self.slots if slot.is_reduced)

    def bind(self, place: int) -> None:
        """Take in one group of the base."""
        taken = [name for slot in self.slots for name in slot.names]
        group = self.base.param_groups[place]
        fresh = bind_group(group, place, known_names=name_parameters(self.model), taken=taken)
        for slot in fresh:
            before = slot.master
            make_master(slot, self._caster.take_original(slot.param))
            self._hand_over(slot, before)
        self.slots.extend(fresh)
        self._caster.bind(self, (slot.param for slot in fresh))
        self._homes = _find_homes(self.model, self.slots)

    def use_modes(self, fp32_groups: Set[int]) -> None:
        """Give every parameter the dtype that follows from its module and from the groups in FP32."""
        self._fp32_groups = frozenset(fp32_groups)
        wide, target = self._find_fp32(fp32_groups), self.manager.target_precision.dtype
        for slot in self.slots:
            self._use_dtype(slot, torch.float32 if id(slot.param) in wide else target)
        if self.model is not None:
            self._caster.force(self, self._forced_by(fp32_groups))
            for peer in self._caster.find_peers(self):
                peer.follow({id(slot.param) for slot in self.slots})
            self._caster.cast_others(self.model, wide=wide, target=target)
            flow = target if any(slot.is_reduced for slot in self.slots) else torch.float32
            self._caster.place_hooks(self.model, self.manager, flow=flow, cast_io=self.options.cast_model_io)

    def follow(self, settled: Set[int]) -> None:
        """Adapt to a change another optimizer made to modules both train; gradients not stepped yet are kept.

        ``settled`` are ids of parameters that one has cared for itself.
        """
        wide, target = self._find_fp32(self._fp32_groups), self.manager.target_precision.dtype
        for slot in self.slots:
            if id(slot.param) in settled:
                continue
            gradient = slot.param.grad
            self._use_dtype(slot, torch.float32 if id(slot.param) in wide else target)
            if gradient is not None:
                slot.param.grad = gradient.to(torch.float32 if self.options.accumulate_in_fp32 else slot.param.dtype)

    def _use_dtype(self, slot: ParameterSlot, dtype: torch.dtype) -> None:
        before = slot.master
        slot.use_dtype(dtype)
        self._hand_over(slot, before)
        if self.options.accumulate_in_fp32 and slot.is_reduced:
            _accumulate_in_fp32(slot.param)

    def plan_dtypes(self, fp32_groups: Set[int]) -> dict[str, torch.dtype]:
        """The dtype each parameter would have with these groups in FP32, those no optimizer trains too."""
        wide, target = self._find_fp32(fp32_groups), self.manager.target_precision.dtype
        everyone = {**self.unbound(), **{slot.name: slot.param for slot in self.slots}}
        return {name: torch.float32 if id(one) in wide else target for name, one in everyone.items()}

    def unbound(self) -> dict[str, torch.Tensor]:
        """Floating parameters of the model that no optimizer of ours trains; they are cast without a master."""
        if self.model is None:
            return {}
        return {
            strip_wrappers(name): parameter
            for name, parameter in self.model.named_parameters()
            if parameter.is_floating_point() and not self._caster.is_bound(parameter)
        }

    def forget(self, place: int) -> None:
        """Undo :meth:`bind` of the last group, before anything was cast."""
        self.slots = [slot for slot in self.slots if slot.group != place]
        del self.base.param_groups[place]

    def require_fits(self, values: Mapping[str, torch.Tensor], fp32_groups: Set[int]) -> None:
        """Raise when a finite weight would become Inf in the precision it is going to be trained in."""
        planned, known = self.plan_dtypes(fp32_groups), self.by_name
        for name, value in values.items():
            _require_holds(name, value, planned[known[name].name if name in known else name])

    def find_unfit(self, places: Iterable[int], fp32_groups: Set[int]) -> frozenset[int]:
        """Those of the groups at ``places`` of which a master would become Inf with ``fp32_groups`` in FP32."""
        planned = self.plan_dtypes(fp32_groups)
        return frozenset(
            slot.group for slot in self.slots if slot.group in places and not _holds(planned[slot.name], slot.master)
        )

    def _forced_by(self, fp32_groups: Set[int]) -> frozenset[int]:
        return frozenset(id(slot.param) for slot in self.slots if slot.group in fp32_groups)

    def _find_fp32(self, fp32_groups: Set[int]) -> Set[int]:
        forced = self._forced_by(fp32_groups)
        if self.model is not None:
            return self._caster.find_fp32(self.model, self.manager, forced=forced, owner=self)
        excluded = {id(s.param) for s in self.slots if any(map(self.manager.should_exclude_layer, s.names))}
        return forced | excluded

    def _hand_over(self, slot: ParameterSlot, before: Parameter) -> None:
        """Let the base own a new master object in place of the one it had, state included."""
        if slot.master is before:
            return
        parameters = self.base.param_groups[slot.group]["params"]
        place = next(order for order, one in enumerate(parameters) if one is before)
        parameters[place] = slot.master
        if before in self.base.state:
            self.base.state[slot.master] = self.base.state.pop(before)

    def collect(self) -> Work:
        """Parameters that have a gradient, with it; sparse ones are refused by name."""
        work = [(slot, slot.param.grad) for slot in self.slots if slot.param.grad is not None]
        for slot, gradient in work:
            if gradient.layout is not torch.strided:
                raise UnsupportedOptimizer(
                    f"{slot.name}: gradient layout is {gradient.layout}, expected dense. "
                    "Build the embedding with sparse=False."
                )
        return work

    def collect_named(self, gradients: Mapping[str, torch.Tensor | None]) -> Work:
        """The slots of a name->gradient mapping, with FP32 copies of the gradients."""
        require_tensors(gradients, "step", may_miss=True)
        known, work = self.by_name, []
        for name, gradient in gradients.items():
            slot = known.get(name)
            if slot is None:
                raise UnknownParameter(f"{name}: no such parameter, known are {sorted(known)[:5]}. Correct the name.")
            if gradient is None:
                continue
            if gradient.shape != slot.param.shape:
                raise InvalidArgument(
                    f"{name}: gradient has shape {tuple(gradient.shape)}, expected {tuple(slot.param.shape)}. "
                    "Pass the gradient of this parameter."
                )
            work.append((slot, gradient.detach().to(torch.float32, copy=True)))
        return work

    def require_unchanged(self) -> None:
        """Raise when training weights were written or replaced behind our back."""
        require_unchanged(self.slots)
        for registry, attribute, parameter in self._homes:
            if registry.get(attribute) is not parameter:
                raise WeightsChanged(
                    f"{attribute}: the model holds another parameter object than the optimizer "
                    "(load_state_dict(assign=True) or a replaced layer). Make the optimizer anew around the model."
                )

    @torch.no_grad()
    def sync_from_model(self) -> list[str]:
        """Take over training weights that someone else wrote; returns their names."""
        changed = [slot for slot in self.slots if slot.is_changed]
        for slot in changed:
            if slot.param.shape != slot.master.shape or slot.param.device != slot.master.device:
                raise InvalidArgument(
                    f"{slot.name}: is now {tuple(slot.param.shape)} on {slot.param.device}, its master "
                    f"{tuple(slot.master.shape)} on {slot.master.device}. Make the optimizer anew around the model."
                )
            slot.master.copy_(slot.param)
            slot.mark()
        return [slot.name for slot in changed]

    def masters(self) -> dict[str, torch.Tensor]:
        """Live FP32 masters under every name."""
        return {name: slot.master.detach() for slot in self.slots for name in slot.names}

    def training(self) -> dict[str, torch.Tensor]:
        """Live training weights under every name."""
        return {name: slot.param.detach() for slot in self.slots for name in slot.names}

    def untrained(self) -> dict[str, torch.Tensor]:
        """Parameters this optimizer does not train, and persistent buffers, under their state_dict names."""
        if self.model is None:
            return {}
        ours = {id(slot.param) for slot in self.slots}
        state = self.model.state_dict(keep_vars=True)
        extra = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
        if extra:
            _LOG.warning("%s: extra state of modules is not kept with the optimizer; save the model as well", extra[:5])
        return {
            strip_wrappers(name): value.detach()
            for name, value in state.items()
            if isinstance(value, torch.Tensor) and id(value) not in ours
        }

    @torch.no_grad()
    def set_values(self, values: Mapping[str, torch.Tensor], fp32_groups: Set[int]) -> None:
        """Write masters by name and recast; names, shapes and range are checked before the first write."""
        known = self.by_name
        covered = {known[name].name for name in values if name in known}
        missing = sorted({slot.name for slot in self.slots} - covered)
        unexpected = sorted(set(values) - set(known))
        if missing or unexpected:
            raise UnknownParameter(f"parameters: missing {missing[:5]}, unexpected {unexpected[:5]}. Pass every one.")
        for name, value in values.items():
            if value.shape != known[name].master.shape:
                got, expected = tuple(value.shape), tuple(known[name].master.shape)
                raise InvalidArgument(f"{name}: shape is {got}, expected {expected}. Pass weights of this model.")
        self.require_fits(values, fp32_groups)
        for name, value in values.items():
            known[name].master.copy_(value)
            known[name].cast_down()

    def rename(self, values: Mapping[str, torch.Tensor]) -> bool:
        """Take names over when ``values`` holds exactly our parameter objects; returns whether it did."""
        names = {id(value): name for name, value in values.items()}
        if set(names) != {id(slot.param) for slot in self.slots}:
            return False
        for slot in self.slots:
            slot.names = (names[id(slot.param)],)
        return True

    @torch.no_grad()
    def alias(self, values: Mapping[str, torch.Tensor]) -> None:
        """Let FP32 tensors of the caller be the weights themselves; only when every group is in FP32."""
        known = self.by_name
        for name, value in values.items():
            slot = known[name]
            slot.master.data = value.detach()
            slot.param.data = value.detach()
            slot.mark()

    def adopt(self, values: Mapping[str, torch.Tensor], fp32_groups: Set[int]) -> None:
        """Bind tensors to a base that has no parameters yet."""
        for name, value in values.items():
            wide = 0 in fp32_groups or self.manager.should_exclude_layer(name)
            _require_holds(name, value, torch.float32 if wide else self.manager.target_precision.dtype)
        self.is_by_name = True
        for name, value in values.items():
            leaf = value if isinstance(value, Parameter) else Parameter(value.detach())
            self.base.param_groups[0]["params"].append(leaf)
            self.slots.extend(
                bind_group({"params": [leaf], "param_names": [name]}, 0, known_names={}, taken=self.by_name)
            )
            slot, before = self.slots[-1], leaf
            make_master(slot)
            self._hand_over(slot, before)
        self.use_modes(fp32_groups)


def require_fp32(values: Mapping[str, torch.Tensor], where: str) -> None:
    """Raise unless every tensor is FP32, so that it can be master and training weight at once."""
    for name, value in values.items():
        if value.dtype != torch.float32:
            raise InvalidArgument(f"{where}: {name} is {value.dtype}, expected torch.float32. Convert it.")


def _require_holds(name: str, value: torch.Tensor, dtype: torch.dtype) -> None:
    if not _holds(dtype, value):
        raise InvalidArgument(
            f"{name}: holds {float(_largest(value)):g}, but {dtype} ends at {torch.finfo(dtype).max:g} and would make "
            "it Inf. Keep this layer in FP32 with fp32_layer_patterns, or train in BF16."
        )


def _holds(dtype: torch.dtype, value: torch.Tensor) -> bool:
    """Whether ``dtype`` turns no finite element of ``value`` into Inf."""
    if dtype == torch.float32 or not value.numel():
        return True
    largest = _largest(value)
    return not bool(torch.isfinite(largest)) or not bool(torch.isinf(largest.to(dtype)))


def _largest(value: torch.Tensor) -> torch.Tensor:
    largest: torch.Tensor = torch.linalg.vector_norm(value.detach().float(), ord=math.inf)
    return largest


def _accumulate_in_fp32(parameter: Parameter) -> None:
    if hasattr(parameter, "grad_dtype"):
        parameter.grad_dtype = torch.float32
    else:
        _LOG.warning("accumulate_in_fp32 needs a torch with Tensor.grad_dtype; gradients add up in half here")


def _find_homes(model: Module | None, slots: Iterable[ParameterSlot]) -> list[tuple[dict[str, Any], str, Parameter]]:
    ours = {id(slot.param): slot.param for slot in slots}
    return [
        (module._parameters, name, ours[id(parameter)])
        for module in (model.modules() if model is not None else ())
        for name, parameter in module._parameters.items()
        if id(parameter) in ours
    ]
