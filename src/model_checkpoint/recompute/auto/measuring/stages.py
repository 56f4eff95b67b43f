"""Stages: see a model as a chain of layer calls, by watching one forward pass.

Containers (``nn.Sequential``, ``nn.ModuleList``) say where layers repeat; the tensors that pass from one call to the
next say whether they form a chain. Works on whatever the model really calls, so nesting and reuse are no matter.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from model_checkpoint.recompute.auto.common.arguments import leaves_of
from model_checkpoint.recompute.auto.running.stage_call import Patch, plain_call

_ENOUGH = 8  # with so many stages, finer ones gain nothing and cost planning time
Handler = Callable[[nn.Module, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


@dataclass(slots=True, kw_only=True, eq=False)
class Node:
    """One call of one module, with the calls it made."""

    module: nn.Module
    children: list[Node] = field(default_factory=list)
    inputs: set[int] = field(default_factory=set)
    outputs: set[int] = field(default_factory=set)

    def feeds(self, other: Node) -> bool:
        """Whether the other call takes a tensor this one returned."""
        return bool(self.outputs & other.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStage:
    """A layer call that can be kept or recomputed as a whole."""

    name: str
    module: nn.Module
    linked: bool  # the next stage takes its output


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStages:
    """The stages of a model; ``chain`` is False when they are only its modules, not a chain of layers."""

    stages: tuple[FoundStage, ...]
    chain: bool


@contextmanager
def intercepted(modules: Sequence[nn.Module], handler: Handler) -> Iterator[None]:
    """Let ``handler`` make the calls of ``modules`` while the block runs."""
    patches = [Patch(module, _bound(module, handler)) for module in {id(m): m for m in modules}.values()]
    for patch in patches:
        patch.install()
    try:
        yield
    finally:
        for patch in patches:
            patch.remove()


def _bound(module: nn.Module, handler: Handler) -> Callable[..., Any]:
    return lambda *args, **kwargs: handler(module, plain_call(module), args, kwargs)


@contextmanager
def nothing_saved() -> Iterator[None]:
    """Let autograd save nothing, so that a forward costs little memory; its graph cannot be walked."""
    with torch.enable_grad(), saved_tensors_hooks(lambda _: None, lambda _: torch.empty(0)):
        yield


class _Watcher:
    """Builds the tree of calls of one forward pass."""

    def __init__(self) -> None:
        self.top = Node(module=nn.Identity())
        self._stack = [self.top]
        self._serials: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        self._count = 0

    def call(
        self, module: nn.Module, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a module and note what went in and came out."""
        node = Node(module=module, inputs=self._numbers([args, kwargs]))
        self._stack[-1].children.append(node)
        self._stack.append(node)
        try:
            result = original(*args, **kwargs)
        finally:
            self._stack.pop()
        node.outputs = self._numbers(result)
        return result

    def _numbers(self, value: Any) -> set[int]:
        return {self._serial(leaf) for leaf in leaves_of(value) if isinstance(leaf, Tensor)}

    def _serial(self, tensor: Tensor) -> int:
        found = self._serials.get(id(tensor))
        if found is not None and found[0]() is tensor:
            return found[1]
        self._count += 1
        self._serials[id(tensor)] = (weakref.ref(tensor), self._count)
        return self._count


def find_stages(model: nn.Module, run: Callable[[], object], *, blocks: bool = False) -> FoundStages:
    """Run the model once and return its stages.

    Args:
        model: what to look into.
        run: calls the model on a sample.
        blocks: leave an ``nn.Sequential`` of plain operations whole; on its own, none of those is worth a second run.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
        >>> [stage.name for stage in find_stages(model, lambda: model(torch.ones(1, 2))).stages]
        ['0', '1', '2']
    """
    watcher = _Watcher()
    with intercepted(list(model.modules()), watcher.call), nothing_saved():
        run()
    root = next(node for node in watcher.top.children if node.module is model)
    items = _container_items(model)
    nodes, chain = [root], _expandable(root, items)
    if not chain:
        while len(nodes) == 1 and nodes[0].children:
            nodes = nodes[0].children

    def opens(node: Node) -> bool:
        plain = not any(child.children for child in node.children)
        return _expandable(node, items) and not (blocks and plain and node is not root)

    while chain and len(nodes) < _ENOUGH and any(opens(node) for node in nodes):
        nodes = [part for node in nodes for part in (node.children if opens(node) else [node])]
    return FoundStages(stages=_named(model, nodes), chain=chain)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Items:
    listed: frozenset[int]  # modules in a ModuleList
    any: frozenset[int]  # modules in a ModuleList or Sequential


def _container_items(model: nn.Module) -> _Items:
    listed = {id(c) for m in model.modules() if isinstance(m, nn.ModuleList) for c in m}
    chained = {id(c) for m in model.modules() if isinstance(m, nn.Sequential) for c in m}
    return _Items(listed=frozenset(listed), any=frozenset(listed | chained))


def _expandable(node: Node, items: _Items) -> bool:
    """Whether a call is better seen as the calls it makes."""
    if not node.children:
        return False
    if type(node.module).forward is nn.Sequential.forward or _strong(node, items):
        return True
    # a repeated layer is one stage even if it has a small container inside
    return id(node.module) not in items.any and any(_expandable(child, items) for child in node.children)


def _strong(node: Node, items: _Items) -> bool:
    """Whether a call runs through a list of layers, itself or one level down."""
    if type(node.module).forward is nn.Sequential.forward:
        return False
    rows = sum(id(child.module) in items.listed for child in node.children)
    return rows >= 2 or any(_strong(child, items) for child in node.children)


def _named(model: nn.Module, nodes: list[Node]) -> tuple[FoundStage, ...]:
    names = {id(module): name or type(model).__name__ for name, module in model.named_modules()}
    used: dict[str, int] = {}
    stages = []
    for position, node in enumerate(nodes):
        name = names[id(node.module)]
        used[name] = used.get(name, 0) + 1
        linked = position + 1 < len(nodes) and node.feeds(nodes[position + 1])
        label = name if used[name] == 1 else f"{name}#{used[name]}"
        stages.append(FoundStage(name=label, module=node.module, linked=linked))
    return tuple(stages)
