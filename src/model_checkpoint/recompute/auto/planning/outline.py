"""Outline: what a model looks like without running it, to tell whether a plan was made for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from torch import nn

from model_checkpoint.recompute.auto.common.errors import PlanMismatch
from model_checkpoint.recompute.auto.planning.plan import Plan


def outline_of(module: nn.Module, *, without: Iterable[nn.Module] = ()) -> str:
    """A digest of the classes, parameters and buffers in a module; those inside ``without`` are left out.

    Example:
        >>> outline_of(nn.Linear(2, 3)) == outline_of(nn.Linear(2, 3))
        True
        >>> outline_of(nn.Linear(2, 3)) == outline_of(nn.Linear(3, 2))
        False
    """
    left_out = {id(part) for other in without for part in other.modules()}
    digest = hashlib.sha256()
    for name, part in module.named_modules():
        if id(part) in left_out:
            continue
        digest.update(f"{name}:{type(part).__qualname__}\n".encode())
        for kind, value in [*part._parameters.items(), *part._buffers.items()]:
            if value is not None:
                digest.update(f" {kind}:{tuple(value.shape)}:{value.dtype}\n".encode())
    return digest.hexdigest()[:16]


def modules_of(model: nn.Module, plan: Plan) -> list[nn.Module]:
    """The module of each planned stage.

    Raises:
        PlanMismatch: the model is not the one that was planned.
    """
    named = {name or type(model).__name__: module for name, module in model.named_modules(remove_duplicate=False)}
    modules = []
    for stage in plan.stages:
        # a module used twice is two stages, the second with a number
        module = named.get(stage.name) or named.get(stage.name.rpartition("#")[0])
        if module is None:
            raise _mismatch(f"{stage.name!r} is not in this model")
        if outline_of(module) != stage.outline:
            raise _mismatch(f"{stage.name!r} is another layer here, a {type(module).__name__}")
        modules.append(module)
    if outline_of(model, without=modules) != plan.outline:
        raise _mismatch(f"the {len(modules)} planned layers are there, but there are others beside them")
    return modules


def _mismatch(what: str) -> PlanMismatch:
    return PlanMismatch(f"plan: made for other layers: {what}. Plan this model anew.")
