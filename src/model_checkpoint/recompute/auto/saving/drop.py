"""Drop: do not keep results of cheap operations whose input is saved anyway; make them again in backward.

Works below modules, on the torch functions themselves, so ``nn.GELU``, ``F.gelu`` and ``x.relu()`` are all seen.
A result gets a recipe only if its input is *anchored*: held by autograd already, or itself rebuilt from such a tensor.
Recipes therefore chain, across stages too: ``LayerNorm(GELU(z))`` needs only ``z``.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from model_checkpoint.recompute.auto.saving.saved import Recipe, Saved
from model_checkpoint.recompute.common.context import autocast_as, autocast_now

_ELEMENTWISE = frozenset(
    {
        F.gelu, F.silu, torch._C._nn.silu, F.relu, torch.relu, Tensor.relu, F.layer_norm, torch.layer_norm,
        F.group_norm, F.rms_norm, F.leaky_relu, F.softplus, F.hardswish, F.mish,
    }
)  # fmt: skip
_CASTS = frozenset({Tensor.to, Tensor.float, Tensor.half, Tensor.bfloat16, Tensor.double, Tensor.type})

# storage -> recipe of the tensor in it, or None for a storage that is held anyway; entries die with the storage
_known: dict[int, Recipe | None] = {}


class _ThreadMode(threading.local):
    """The mode this thread runs under."""

    mode: DropMode | None = None


_local = _ThreadMode()


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _note(tensor: Tensor, recipe: Recipe | None) -> None:
    """Remember a recipe (or an anchor) as long as the storage lives."""
    storage = tensor.untyped_storage()
    key = int(storage._cdata)
    if key not in _known:
        weakref.finalize(storage, _known.pop, key, None)
    _known[key] = recipe


def recipe_of(tensor: Tensor) -> Recipe | None:
    """The recipe of a tensor, unless somebody wrote into it since."""
    recipe = _known.get(_storage(tensor))
    return recipe if recipe is not None and recipe.version == tensor._version else None


def save_or_rebuild(tensor: Tensor) -> Saved:
    """Save a tensor; by its recipe if it has one."""
    saved = Saved(tensor)
    recipe = recipe_of(tensor)
    if recipe is not None:
        saved.replace_by(recipe)
        return saved
    mode = _local.mode
    if mode is not None:
        mode.pending.append(saved)
        if _storage(tensor) not in _known:
            _note(tensor, None)
    return saved


def _source(tensor: Tensor) -> Saved | None:
    """A tensor as an ingredient, or None if holding it would cost memory."""
    recipe = recipe_of(tensor)
    saved = Saved(tensor)
    if recipe is not None:
        saved.replace_by(recipe)
        return saved
    return saved if _known.get(_storage(tensor), False) is None else None


class DropMode(TorchFunctionMode):
    """While active, gives recipes to the results of cheap operations.

    Args:
        masks: also rebuild dropout masks from the generator state, which costs drawing them again.
    """

    def __init__(self, *, masks: bool = False) -> None:
        super().__init__()
        self.masks = masks
        self.pending: list[Saved] = []
        self._outer: DropMode | None = None

    def __enter__(self) -> DropMode:
        self._outer, _local.mode = _local.mode, self
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)  # type: ignore[no-untyped-call]
        _local.mode = self._outer

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the function; afterwards note how to make its result again."""
        kwargs = kwargs or {}
        if not args or not torch.is_grad_enabled():
            return func(*args, **kwargs)
        # a cast like another tensor would have to hold that tensor
        if func in _ELEMENTWISE or (func in _CASTS and not any(isinstance(value, Tensor) for value in args[1:])):
            return self._run(func, args, kwargs, _repeat(func, args, kwargs))
        if func is F.batch_norm:
            return self._run(func, args, kwargs, _repeat_norm(args, kwargs))
        if func is F.dropout:
            return self._run_dropout(args, kwargs)
        return func(*args, **kwargs)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], repeat: Callable[[Saved], Any]) -> Any:
        self.pending = []
        result = func(*args, **kwargs)
        source = args[0]
        if _worth(source, result):
            self._give_recipe(source, result, repeat)
        self.pending = []
        return result

    def _give_recipe(
        self, source: Tensor, result: Tensor, repeat: Callable[[Saved], Any], *, draws: bool = False
    ) -> None:
        ingredient = _source(source)
        if ingredient is None:
            return
        recipe = Recipe(repeat(ingredient), version=result._version, draws=draws or ingredient.draws)
        _note(result, recipe)
        # an operation that saves its own result did so before the recipe was known
        key = _storage(result)
        for saved in self.pending:
            if saved.tensor is not None and _storage(saved.tensor) == key:
                saved.replace_by(recipe)

    def _run_dropout(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Dropout on the CPU is a product with a mask; both can be rebuilt."""
        source = args[0]
        given = dict(zip(("p", "training", "inplace"), args[1:], strict=False)) | kwargs
        rate, training = given.get("p", 0.5), given.get("training", True)
        if given.get("inplace", False) or not training or source.device.type != "cpu" or not 0.0 < rate < 1.0:
            return F.dropout(*args, **kwargs)
        state = torch.default_generator.get_state().clone() if self.masks else None
        self.pending = []
        result = F.dropout(*args, **kwargs)
        keys = (_storage(source), _storage(result))
        masks = [s for s in self.pending if s.tensor is not None and _storage(s.tensor) not in keys]
        if len(masks) == 1 and masks[0].tensor is not None and masks[0].tensor.shape == source.shape:
            mask = masks[0]
            if state is not None:
                mask.replace_by(Recipe(_repeat_mask(source, rate, state), version=0, draws=True))
            if _worth(source, result):
                self._give_recipe(source, result, lambda held: lambda: held.open() * mask.open(), draws=mask.draws)
        self.pending = []
        return result


def _worth(source: Any, result: Any) -> bool:
    """Whether a result is a new tensor with history, not a view of its source or written in place."""
    return (
        isinstance(source, Tensor)
        and isinstance(result, Tensor)
        and result.grad_fn is not None
        and result.device == source.device
        and _storage(result) != _storage(source)
    )


def _repeat(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Saved], Callable[[], Tensor]]:
    """Run ``func`` again on its first argument; other tensors are parameters, checked for changes."""
    others = [Saved(value) if isinstance(value, Tensor) else value for value in args[1:]]
    named = {key: Saved(value) if isinstance(value, Tensor) else value for key, value in kwargs.items()}
    autocast = autocast_now()

    def bind(source: Saved) -> Callable[[], Tensor]:
        def build() -> Tensor:
            rest = [_open(value) for value in others]
            with_names = {key: _open(value) for key, value in named.items()}
            with autocast_as(autocast):
                result: Tensor = func(source.open(), *rest, **with_names)
            return result

        return build

    return bind


def _repeat_norm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Saved], Callable[[], Tensor]]:
    """Batch norm again: in training without the running statistics, which must not move twice."""
    names = ("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    given = dict(zip(names, args[1:], strict=False)) | kwargs
    if given.get("training", False):
        given["running_mean"] = given["running_var"] = None
    return _repeat(F.batch_norm, args[:1], given)


def _repeat_mask(source: Tensor, rate: float, state: Tensor) -> Callable[[], Tensor]:
    """Draw a dropout mask again from the generator state it was drawn with."""
    shape, strides, dtype = source.shape, source.stride(), source.dtype

    def build() -> Tensor:
        masks: list[Tensor] = []
        now = torch.default_generator.get_state()
        torch.default_generator.set_state(state)
        try:
            like = torch.empty_strided(shape, strides, dtype=dtype).requires_grad_()
            with torch.enable_grad(), saved_tensors_hooks(lambda t: masks.append(t.detach()), lambda _: like):
                F.dropout(like, rate, training=True)
        finally:
            torch.default_generator.set_state(now)
        return masks[0]

    return build


def _open(value: Any) -> Any:
    return value.open() if isinstance(value, Saved) else value
