"""Stateful objects: live things with a state_dict take their saved state through their own ``load_state_dict``."""

from __future__ import annotations

from typing import Any

from model_checkpoint.manifest import Node
from model_checkpoint.tree.arrays.frameworks import state_of
from model_checkpoint.tree.nodes.walk import ARRAYS, tag_of
from model_checkpoint.tree.restoring.matching import Matching, ObjectLoad, inner_of
from model_checkpoint.tree.values.classes import label


def match_object(matching: Matching, node: Node, live: Any, *, name: str, kind: str) -> None:
    """Lay a saved state over a live object."""
    if kind == "module":
        from model_checkpoint.tree.restoring import torch_modules

        torch_modules.match_module(matching, node, live, name=name)
    elif kind == "optimizer":
        from model_checkpoint.tree.restoring import torch_optimizers

        torch_optimizers.match_optimizer(matching, node, live, name=name)
    elif kind.startswith("keras."):
        from model_checkpoint.tree.restoring import keras_objects

        keras_objects.match_keras(matching, node, live, name=name)
    else:
        _match_any(matching, node, live, name=name, kind=kind)


def _match_any(matching: Matching, node: Node, live: Any, *, name: str, kind: str) -> None:
    saved_class = node[2] if isinstance(node, list) and tag_of(node) == "m" else None
    if tag_of(node) in ARRAYS:
        matching.problem(name, f"saved as an array, live it is a {type(live).__qualname__}")
        return
    if kind == "scheduler" and saved_class not in (None, label(type(live))):
        matching.problem(name, f"saved from {saved_class}, live it is {label(type(live))}")
        return
    make = matching.fresh(inner_of(node), name)
    if make is not None:
        matching.loads.append(ObjectLoad(name, make=make, apply=live.load_state_dict, present=lambda: state_of(live)))
