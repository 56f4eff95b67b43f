"""Restore: a saved tree becomes a state again, or flows into the caller's live objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from model_checkpoint.manifest import Entry, Layout, Node
from model_checkpoint.performance.gc_pause import collector_paused
from model_checkpoint.state import ShardTarget, Target
from model_checkpoint.tree.arrays.buffers import adapter, import_framework
from model_checkpoint.tree.arrays.sharded_buffer import ShardedBuffer
from model_checkpoint.tree.restoring.build import Builder

if TYPE_CHECKING:
    from model_checkpoint.tree.restoring.matcher import Matcher

_ON_DEVICES = frozenset(("torch", "jax"))


@collector_paused()
def prepare(
    tree: Node,
    entries: Sequence[Entry],
    *,
    into: Any = None,
    types: Sequence[type] = (),
    framework: str | None = None,
    device: Any = None,
    atomic: bool = False,
    cast: bool = False,
) -> Restore:
    """Check everything that can be checked, and return what waits for the bytes; nothing live has changed.

    Args:
        tree: A saved tree, whole or selected.
        entries: The stored arrays its nodes point at.
        into: Live objects to fill; what they do not ask for is left alone.
        types: Classes that may be restored although their module is not imported, or has moved.
        framework: Give all arrays back as ``"numpy"``, ``"torch"``, ``"jax"`` or ``"tensorflow"``.
        device: Where fresh torch and jax arrays go.
        atomic: Change the live objects only when every byte is there.
        cast: Let live arrays keep their dtype where another was saved; ``Restore.casts`` tells which did.

    Raises:
        StructureMismatch: live objects and checkpoint differ.
        UnsupportedType: a framework or device cannot take the arrays.
        ClassUnavailable: a class, codec or framework is missing.
        ManifestInvalid: the tree is damaged.

    Example:
        >>> prepare(["d", ["epoch", 3]], []).finish()
        {'epoch': 3}
    """
    if framework is not None:
        import_framework(framework)
    builder = Builder(entries, types=types, framework=framework, device=device)
    if into is None:
        builder.check(tree)
        restore = Restore(builder, lambda: builder.build(tree))
    else:  # who looks at a checkpoint has no live objects, and does without what fills them
        from model_checkpoint.tree.restoring.live_state import live_state
        from model_checkpoint.tree.restoring.matcher import Matcher

        matcher = Matcher(builder, live_state(into), atomic=atomic, cast=cast)
        restore = Restore(builder, matcher.start(tree), matcher)
    if device is not None:
        for kind in sorted({memory.kind for memory in builder.memories.values()} & _ON_DEVICES):
            adapter(kind).require_device(device)
    return restore


class Restore:
    """A load under way: ask for the targets of ``needed``, fill them with verified bytes, then ``finish``."""

    def __init__(self, builder: Builder, make: Callable[[], Any], matcher: Matcher | None = None) -> None:
        self._builder, self._make, self._matcher = builder, make, matcher
        self.needed: Sequence[int] = tuple(builder.memories)
        self.casts: Sequence[tuple[str, str, str]] = () if matcher is None else tuple(matcher.destinations.casts)

    @property
    def _live(self) -> Mapping[int, Target | ShardTarget]:
        return {} if self._matcher is None else self._matcher.targets

    def target(self, entry: int) -> Target | ShardTarget:
        """Return where the bytes of stored array ``entry`` go."""
        live = self._live.get(entry)
        return live if live is not None else self._builder.memories[entry].wait()

    def targets(self, entries: Sequence[int]) -> dict[int, Target | ShardTarget]:
        """Return where the bytes of stored arrays go."""
        live, memories = self._live, self._builder.memories
        return {entry: live[entry] if entry in live else memories[entry].wait() for entry in entries}

    def fresh_bytes(self) -> int:
        """Return how much memory the stored arrays take in this process beside what the caller has."""
        live = self._live
        return sum(memory.fresh_bytes for entry, memory in self._builder.memories.items() if entry not in live)

    @property
    def sharded(self) -> Mapping[int, ShardedBuffer]:
        """The stored arrays that go to live ones on many ranks."""
        return self._builder.sharded

    def laid_out(self) -> list[tuple[tuple[int, ...], Layout, list[tuple[int, ...]]]]:
        """Return shape, layout and the shapes here of every array that goes to live ones on many ranks."""
        lying = [memory.live for memory in self.sharded.values()]
        return [(one.shape, one.layout, [part.shape for part in one.locals]) for one in lying]

    def layouts(self) -> dict[int, Layout]:
        """Return how live arrays on many ranks lie, by the number of the stored array that goes there."""
        return {number: memory.live.layout for number, memory in self.sharded.items()}

    def shard_names(self) -> list[str]:
        """Return the names of those arrays."""
        return [memory.name for memory in self.sharded.values()]

    def live_names(self, entry: int) -> list[str]:
        """Return the names of the live arrays that ``entry`` goes straight into."""
        return [] if self._matcher is None else self._matcher.destinations.names_at(entry)

    def adopt(self, entry: int, data: memoryview) -> bool:
        """Use ``data`` as the memory of ``entry`` without copying; False if it must be copied to the target."""
        return entry not in self._live and self._builder.memories[entry].adopt(data)

    @collector_paused()
    def finish(self) -> Any:
        """Build the state, or apply it to the live objects, once all bytes have arrived; returns it."""
        if self._matcher is None:
            self._builder.finish()
            return self._make()
        return self._matcher.finish(self._make)
