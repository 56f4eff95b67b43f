"""MixedPrecisionOptimizer: any dense torch optimizer, trained in 16 bits over FP32 masters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch.nn import Module

from model_checkpoint.precision.checkpoints.capture import capture
from model_checkpoint.precision.checkpoints.reinstate import restore, take_modes
from model_checkpoint.precision.checkpoints.torch_layout import OBSERVATIONS, from_state_dict, to_state_dict
from model_checkpoint.precision.checkpoints.tree_codec import from_tree, to_tree
from model_checkpoint.precision.errors import InvalidArgument, StepRefused
from model_checkpoint.precision.gradients.conversion import describe_gradients, require_tensors
from model_checkpoint.precision.parameters.parameter_table import ParameterTable, require_fp32
from model_checkpoint.precision.scaling.consensus import DEFAULT_GROUP
from model_checkpoint.precision.scaling.fallback import fall
from model_checkpoint.precision.scaling.scaler import DynamicLossScaler
from model_checkpoint.precision.settings.number_formats import Precision
from model_checkpoint.precision.settings.precision_manager import PrecisionManager
from model_checkpoint.precision.settings.precision_options import FOR_FP16, MixedPrecisionOptions, require_options
from model_checkpoint.precision.stepping.monitor import PerformanceMonitor
from model_checkpoint.precision.stepping.results import MixedPrecisionOptimizerStats, StepResult
from model_checkpoint.precision.stepping.schedules import guard_base, hold_on_skips, refuse_closure, require_supported
from model_checkpoint.precision.stepping.session import Session

_BUCKET_DTYPE = re.compile(r"^Expected (Half|BFloat16|Float), got (Half|BFloat16|Float)$")


class MixedPrecisionOptimizer(torch.optim.Optimizer):
    """Steps FP32 masters from 16-bit training and clips gradients to norm 1.0 unless ``options`` say otherwise.

    A drop-in for the training loop: ``opt.zero_grad(); opt.backward(loss); opt.step()``. Pass ``model`` so that
    parameters have names, layers are cast and excluded, and their inputs and outputs follow. Without a model, hand
    gradients over by name: ``opt.step({"w": gradient})``. ``param_groups`` are those of the base, and hold masters.

    Args:
        base_optimizer: any dense, closure-free torch optimizer; it owns the masters from now on.
        options: what to do; FP16 with dynamic scaling by default.
        model: the module whose parameters are trained.
        scaler: share another optimizer's ``opt.scaler`` when one loss trains both.
        process_group: processes that agree on each verdict; None decides alone.

    Example:
        >>> model = torch.nn.Linear(4, 2)
        >>> options = MixedPrecisionOptions.for_fp16(initial_loss_scale=256.0)
        >>> opt = MixedPrecisionOptimizer(torch.optim.AdamW(model.parameters()), options, model=model)
        >>> opt.backward(model(torch.ones(3, 4)).square().mean())
        >>> opt.step().applied, model.weight.dtype, opt.master_weights["weight"].dtype
        (True, torch.float16, torch.float32)
    """

    of_rank_zero = OBSERVATIONS  # every rank has its own clock, and needs none of its own back

    def __init__(
        self,
        base_optimizer: torch.optim.Optimizer,
        options: MixedPrecisionOptions | None = None,
        *,
        model: Module | None = None,
        scaler: DynamicLossScaler | None = None,
        process_group: Any = DEFAULT_GROUP,
    ) -> None:
        self._base = require_supported(base_optimizer)
        self._options = FOR_FP16 if options is None else require_options(options)
        super().__init__([torch.zeros(())], {})  # gives us torch's hooks; groups and state are the base's, see below
        self.defaults = self._base.defaults
        self._manager = PrecisionManager(self._options)
        self._table = ParameterTable(self._base, model=model, manager=self._manager, options=self._options)
        self._session = Session(
            self._table,
            scaler=scaler or self._make_scaler(),
            monitor=self._make_monitor(),
            process_group=process_group,
        )
        self._table.require_fits({**self._table.unbound(), **self._table.masters()}, frozenset())
        self._session.scaler.join(self)
        self._table.use_modes(frozenset())
        guard_base(self._base)
        self._one_map: dict[str, torch.Tensor] | None = None

    def _make_scaler(self) -> DynamicLossScaler:
        fields = {**self._options.to_tree(), "precision": self.target_precision.value, "auto_detect_precision": False}
        return DynamicLossScaler(MixedPrecisionOptions.from_tree(fields))

    def _make_monitor(self) -> PerformanceMonitor | None:
        return PerformanceMonitor(self._options) if self._options.enable_performance_monitoring else None

    # torch reads and schedulers write these two; they are the base's own, whatever replaces them there
    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The base optimizer's groups; their parameters are the masters."""
        return self._base.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        """Ignored: torch assigns an empty list while constructing."""

    @property
    def state(self) -> Any:
        """The base optimizer's state, keyed by master."""
        return self._base.state

    @state.setter
    def state(self, state: Any) -> None:
        """Ignored: torch assigns an empty mapping while constructing."""

    @property
    def base_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer that owns the masters."""
        return self._base

    @property
    def options(self) -> MixedPrecisionOptions:
        """The options given."""
        return self._options

    @property
    def scaler(self) -> DynamicLossScaler:
        """The loss scaler; give it to another optimizer to share it."""
        return self._session.scaler

    @property
    def session(self) -> Session:
        """Counters, modes and timeline: what a checkpoint keeps beside weights."""
        return self._session

    @property
    def parameter_table(self) -> ParameterTable:
        """The trained parameters with their masters and names."""
        return self._table

    @property
    def manager(self) -> PrecisionManager:
        """Which layers are excluded; :meth:`sync_from_model` puts changes of its patterns into effect."""
        return self._manager

    @property
    def target_precision(self) -> Precision:
        """The precision trained in while not fallen back."""
        return self._manager.target_precision

    @property
    def master_weights(self) -> dict[str, torch.Tensor]:
        """Live FP32 masters by name; the same object as :attr:`training_weights` when all groups are in FP32."""
        return self._full_map() if self._is_all_fp32() else self._table.masters()

    @property
    def training_weights(self) -> dict[str, torch.Tensor]:
        """Live weights the model computes with, by name."""
        return self._full_map() if self._is_all_fp32() else self._table.training()

    def _is_all_fp32(self) -> bool:
        fallback = self._session.fallback
        return len(fallback.fp32_groups) == len(fallback.groups)

    def _full_map(self) -> dict[str, torch.Tensor]:
        if self._one_map is None:
            self._one_map = self._table.masters()
        return self._one_map

    @property
    def has_fallback(self) -> bool:
        """Whether any group has fallen back to FP32."""
        return self._session.fallback.any_fp32

    @property
    def step_count(self) -> int:
        """Steps attempted, skipped ones included."""
        return self._session.counters.step_count

    @property
    def skipped_steps(self) -> int:
        """Steps not applied."""
        return self._session.counters.skipped_steps

    @property
    def loss_scale(self) -> float:
        """The factor the next loss gets."""
        return self._session.loss_scale

    @property
    def last_result(self) -> StepResult | None:
        """What the latest step did; None before the first."""
        return self._session.last_result

    @property
    def learning_rate(self) -> float:
        """The first group's learning rate."""
        return float(self.param_groups[0]["lr"])

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set every group's learning rate."""
        for group in self.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate

    def set_parameters(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """Write masters by name (and recast), name parameters, or bind them when the base has none yet.

        When all groups are in FP32, the tensors given become the weights themselves and the mapping both maps.
        """
        require_tensors(parameters, "set_parameters")
        fallen, shared = self._session.fallback.fp32_groups, self._is_all_fp32()
        if shared:
            require_fp32(parameters, "set_parameters in fallback")
        if not self._table.slots:
            self._table.adopt(parameters, fallen)
        elif not self._table.rename(parameters):
            self._table.set_values(parameters, fallen)
        if shared:
            self._table.alias(parameters)
            self._one_map = cast(dict[str, torch.Tensor], parameters)

    def sync_from_model(self) -> list[str]:
        """Take over weights that ``model.load_state_dict`` or anyone else wrote; returns their names."""
        changed = self._table.sync_from_model()
        self._session.use_modes()  # someone may have converted the model as well
        return changed

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss to call backward on; several losses and micro-batches may be scaled before one step."""
        return self._session.scale_loss(loss)

    def backward(self, loss: torch.Tensor, **options: Any) -> None:
        """Scale the loss and run its backward pass; a non-finite loss runs too, so that all ranks stay in step."""
        scaled = self.scale_loss(loss)
        try:
            torch.autograd.backward(scaled, **options)
        except RuntimeError as error:
            if not _BUCKET_DTYPE.search(str(error)):
                raise
            raise StepRefused(
                f"backward: {error}. DistributedDataParallel reduces gradients only in the dtype its parameters had "
                "when it was made, and the optimizer does not know it. Make the optimizer with it as model=, or "
                "choose accumulate_in_fp32=False and wrap the model again after a fallback."
            ) from error

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, gradients: Mapping[str, torch.Tensor] | None = None, *, closure: None = None
    ) -> StepResult:
        """Judge the gradients, then apply them or skip; scaled gradients may be given by name.

        Raises:
            NonFiniteTraining: gradients stayed non-finite in FP32 for ``max_fp32_failures`` steps in a row.
        """
        refuse_closure(gradients)
        refuse_closure(closure)
        self._table.require_unchanged()
        if gradients is None:
            self._require_known_source()
            work = self._table.collect()
        else:
            work = self._table.collect_named(gradients)
        result = self._session.step(work, member=self)
        self._base._opt_called = True  # type: ignore[attr-defined] # schedulers on the base ask for it
        self._one_map = self._one_map if self._is_all_fp32() else None
        return result

    def _require_known_source(self) -> None:
        if not self._table.slots:
            raise InvalidArgument("step: the optimizer has no parameters. Call set_parameters() first.")
        if self._table.is_by_name:
            raise InvalidArgument("step: gradients is None, but the parameters were given by name. Pass gradients too.")
        self._session.require_scaled()

    def step_parameter(self, name: str, gradient: torch.Tensor) -> StepResult:
        """Step one parameter alone with its scaled gradient; counts as a step."""
        if name is None or not name.strip():
            raise InvalidArgument(f"step_parameter: name is {name!r}. Pass the name of a parameter.")
        if gradient is None:
            raise InvalidArgument(f"step_parameter: gradient of {name} is None. Pass a tensor.")
        return self.step({name: gradient})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop (or zero) all gradients and forget the losses they came from; a loss not yet run backward stays."""
        came_from_losses = self._session.has_fresh_gradients
        for slot in self._table.slots:
            if set_to_none:
                slot.param.grad = None
            elif slot.param.grad is not None:
                slot.param.grad.detach_().zero_()
        type(self._base).zero_grad(self._base, set_to_none)
        self._session.mark_spent()
        if came_from_losses:
            self._session.drop_window()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Train more parameters; they get masters and the target precision. Refused ones change nothing."""
        if not hasattr(self, "_table"):  # torch's constructor; the base has its groups already
            return
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise InvalidArgument("add_param_group: got no dict with 'params'. Pass {'params': [...], 'lr': ...}.")
        given = param_group["params"]
        fresh = [given] if isinstance(given, torch.Tensor) else list(given)
        ours = {id(slot.param) for slot in self._table.slots}
        if any(id(one[1] if isinstance(one, tuple) else one) in ours for one in fresh):
            raise InvalidArgument("add_param_group: some parameters are in another group already. Leave them out.")
        type(self._base).add_param_group(self._base, {**param_group, "params": fresh})
        try:
            self._table.bind(len(self.param_groups) - 1)
            self._table.require_fits(self._table.masters(), self._session.fallback.fp32_groups)
        except InvalidArgument:
            self._table.forget(len(self.param_groups) - 1)
            raise
        self._session.add_group()
        self._session.use_modes()

    def add_scheduler(self, scheduler: Any) -> Any:
        """Let ``scheduler.step()`` rest after skipped steps; returns the scheduler."""
        hold_on_skips(scheduler, lambda: self.last_result is None or self.last_result.applied)
        return scheduler

    def fallback_to_fp32(self) -> None:
        """Train all groups in FP32 from now on, masters as they are; a second call does nothing.

        Call it after ``step()``: gradients that were not stepped yet are dropped, with a warning in the log.
        """
        places = frozenset(range(self._table.group_count))
        if not self._is_all_fp32():
            state, change = fall(self._session.fallback, places)
            self._session.enter(state, change)

    def forget_map(self) -> None:
        """Build the weight maps anew at the next look; for whoever replaced the tensors."""
        self._one_map = None

    def get_stats(self) -> MixedPrecisionOptimizerStats:
        """A snapshot of all counters."""
        session = self._session
        return MixedPrecisionOptimizerStats(
            step_count=session.counters.step_count,
            skipped_steps=session.counters.skipped_steps,
            bad_losses=session.counters.bad_losses,
            has_fallback=self.has_fallback,
            target_precision=self.target_precision,
            gradient_stats=describe_gradients(
                self._options, session.scaler, clips=session.counters.clip_count, norm=session.last_norm
            ),
            loss_scaler_stats=session.scaler.get_stats(),
            performance_stats=session.performance,
        )

    def reset(self) -> None:
        """Zero all counters, reset the scaler and return from fallback; weights and base state stay."""
        self._session.reset()
        self._one_map = None

    def state_dict(self) -> dict[str, Any]:
        """Everything :meth:`load_state_dict` needs, as plain values and live tensors: masters, state, counters."""
        return to_state_dict(to_tree(capture(self, copy=False)))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from :meth:`state_dict`, bit for bit; everything is checked before anything changes."""
        restore(self, from_tree(from_state_dict(state_dict)))

    def prepare_to_load(self, saved: Callable[[str], Any]) -> Callable[[], None] | None:
        """Take the precision of what is about to be loaded, so that a model saved in fallback fits; see ``mc.load``."""
        modes = saved("mixed_precision.fallback")
        return None if modes is None else take_modes(self, modes)

    def __getstate__(self) -> dict[str, Any]:
        raise StepRefused(
            "MixedPrecisionOptimizer: cannot be pickled or deep-copied. Use state_dict(), or make another one."
        )
