"""Torch owners: which module owns a parameter, so that optimizer state is named after it."""

from __future__ import annotations

from typing import Any

from model_checkpoint.manifest import Node
from model_checkpoint.tree.arrays.torch_types import bare_optimizer
from model_checkpoint.tree.flattening.encode import Encoder
from model_checkpoint.tree.flattening.torch_wrappers import bare_keys
from model_checkpoint.tree.nodes.names import dotted, join
from model_checkpoint.tree.nodes.walk import places
from model_checkpoint.tree.values.classes import label


def annotate(tree: Node, encoder: Encoder) -> None:
    """Mark frozen parameters, and give optimizer nodes the name and shape of each of their parameters."""
    for node, module in encoder.modules:
        _mark_frozen(node, module, encoder)
    if not encoder.optimizers:
        return
    names = parameter_names(places(tree, {id(node): module for node, module in encoder.modules}))
    for node, optimizer in encoder.optimizers:
        node[2] = label(type(bare_optimizer(optimizer)))  # a wrapper says nothing about whose state it is
        node.append([[names.get(id(p)), list(p.shape)] for p in parameters(optimizer)])


def parameters(optimizer: Any) -> list[Any]:
    """Return the parameters of an optimizer in the order its state_dict counts them."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def parameter_names(modules: list[tuple[str, Any]]) -> dict[int, str]:
    """Return the dotted name of each parameter, by identity; the first module that owns it names it."""
    names: dict[int, str] = {}
    for prefix, module in modules:
        known = dict(module.named_parameters())
        bare = bare_keys(module, known)
        for name, parameter in known.items():
            names.setdefault(id(parameter), join(prefix, dotted(bare[name])))
    return names


def _mark_frozen(node: list[Any], module: Any, encoder: Encoder) -> None:
    known = dict(module.named_parameters(remove_duplicate=False))
    bare = bare_keys(module, known)
    frozen = {bare[name] for name, p in known.items() if not p.requires_grad}
    if not frozen or not isinstance(node[3], list) or node[3][0] != "o":
        return
    flat = node[3][1]
    for key, item in zip(flat[::2], flat[1::2], strict=True):
        if key in frozen and isinstance(item, list) and item[0] == "a":
            encoder.found[item[1]].frozen = True
