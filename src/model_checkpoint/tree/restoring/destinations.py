"""Destinations: stored arrays reach the live arrays that wait for them, directly where their memory allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np

from model_checkpoint.errors import CheckpointException
from model_checkpoint.state import ShardTarget, Target
from model_checkpoint.tree.arrays.aliasing import overlapping
from model_checkpoint.tree.arrays.array_ref import ArrayRef
from model_checkpoint.tree.arrays.buffers import adapter, show
from model_checkpoint.tree.arrays.frameworks import Finder
from model_checkpoint.tree.arrays.sharded_buffer import ShardedBuffer
from model_checkpoint.tree.arrays.shards.sharded_ref import ShardedRef
from model_checkpoint.tree.nodes.located_error import LocatedError
from model_checkpoint.tree.nodes.names import ROOT
from model_checkpoint.tree.restoring.build import Builder, located
from model_checkpoint.tree.restoring.live_state import LiveState
from model_checkpoint.tree.values.dtypes import number
from model_checkpoint.tree.values.numpy_dtypes import from_name

IN_PLACE = ("torch", "numpy")  # arrays of other kinds never change; they are replaced


class Assign(NamedTuple):
    """A value to put into a live container or variable."""

    put: Callable[[Any], None]
    make: Callable[[], Any]


class _Use(msgspec.Struct, frozen=True):
    """One live array and the array node that is to fill it."""

    name: str
    node: list[Any]
    live: ArrayRef
    dtype: str  # as saved

    @property
    def is_cast(self) -> bool:
        """Whether the values are to have another dtype than they were saved with."""
        return self.dtype != self.live.dtype.name


class Destinations:
    """All live arrays of a load."""

    def __init__(self, builder: Builder, live: LiveState, *, atomic: bool, cast: bool = False) -> None:
        self._builder, self._live, self._atomic, self._cast = builder, live, atomic, cast
        self.casts: list[tuple[str, str, str]] = []  # name, saved dtype, live dtype
        self._problems: list[str] = []
        self._uses: dict[int, list[_Use]] = {}
        self._direct: dict[int, _Use] = {}
        self._on_ranks: set[int] = set()  # those of the uses that go to arrays on many ranks
        self.targets: dict[int, Target | ShardTarget] = {}
        self.assigns: list[Assign] = []  # live variables, which take a whole value

    def match(self, node: list[Any], live: Any, name: str, find: Finder) -> Callable[[], Any] | None:
        """Note that array node ``node`` fills ``live``, after comparing dtype and shape."""
        try:
            found = self._live.ref(live, find)
        except LocatedError as error:
            return self._problem(name, error.what)
        kind, wanted = found.kind, found.dtype.name
        try:
            dtype, shape = self._builder.described(node)
            cast = dtype != wanted and shape == found.shape and self.takes_cast(dtype, wanted)
            self._builder.memory(node, name, "numpy" if cast and kind not in IN_PLACE else kind)
        except CheckpointException as error:
            raise located(name, error) from error
        if (dtype != wanted and not cast) or shape != found.shape:
            return self._problem(name, f"saved {dtype} {list(shape)}, live {wanted} {list(found.shape)}")
        if cast:
            self.casts.append((name, dtype, wanted))
        if kind not in IN_PLACE:
            return self._replaced(node, found, name, cast=cast)
        why = found.why_not_written()
        if why:
            return self._problem(name, why)
        use, index = _Use(name, node, found, dtype), node[1]
        if index in self._uses:
            self._uses[index].append(use)
        else:
            self._uses[index] = [use]
        if found.on_ranks:
            self._on_ranks.add(index)
        return None

    def takes_cast(self, saved: str, live: str) -> bool:
        """Tell whether the caller wants values cast, and numbers of the one dtype can be numbers of the other."""
        one, other = number(saved.removeprefix(">")), number(live.removeprefix(">"))
        known = one is not None and other is not None and not one.packed and not other.packed
        return self._cast and known and ("complex" in live or "complex" not in saved)

    def _replaced(self, node: list[Any], found: ArrayRef, name: str, *, cast: bool) -> Callable[[], Any] | None:
        """Return what makes the successor of a live array that cannot be written."""
        saved = self._builder.memory(node, name, found.kind).entry
        if found.kind == "jax" and (saved.attributes if saved.kind == "jax" else None) != found.attributes:
            return self._problem(
                name, f"saved as {saved.attributes or 'numbers'}, live {found.attributes or 'numbers'}"
            )
        if isinstance(found, ShardedRef):
            if cast:
                return self._problem(name, "values that lie on several processes are not cast. Load the saved dtype")
            memory = self._builder.memory_like(node, name, found)
            return lambda: memory.value("", None)
        made = adapter(found.kind)

        def build() -> Any:
            array = self._builder.array(node)
            return made.make(_cast(array, found.dtype.name), None, None) if cast else array

        make: Callable[[], Any] = made.successor(found.value, build)
        put = made.setter(found.value)
        if put is None:
            return make
        self.assigns.append(Assign(put, make))
        return None

    def _problem(self, name: str, what: str) -> Callable[[], Any] | None:
        self._problems.append(f"{name or ROOT}: {what}")
        return None

    def settle(self) -> list[str]:
        """Choose which live memory takes bytes directly; return what is wrong."""
        self._refuse_conflicts()
        self._match_layouts()
        if not self._problems and not self._atomic:
            for index, uses in self._uses.items():
                self._aim(index, uses)
        return self._problems

    def _refuse_conflicts(self) -> None:
        """Two stored arrays cannot both go to one live memory, unless they were views stored apart."""
        uses = [use for same in self._uses.values() for use in same]
        for group in overlapping([use.live for use in uses]):
            members = [uses[i] for i in group]
            plain = {use.node[1] for use in members if not self._stored_apart(use)}
            if len(plain) > 1:
                names = ", ".join(use.name for use in members[:4])
                self._problem(members[0].name, f"live these share memory, saved they were apart: {names}")

    def _match_layouts(self) -> None:
        """Let what goes to arrays on many ranks come in parts like theirs; those that show one must lie alike."""
        for index in sorted(self._on_ranks):
            uses = self._uses[index]
            lying = [use.live for use in uses if isinstance(use.live, ShardedRef)]
            if len(lying) < len(uses) or any(one.layout != lying[0].layout for one in lying):
                names = ", ".join(use.name for use in uses[:4])
                what = f"saved these are one array, live they lie differently on the ranks: {names}"
                self._problem(uses[0].name, what)
            elif not self._problems:
                self._builder.memory_like(uses[0].node, uses[0].name, lying[0])

    def _stored_apart(self, use: _Use) -> bool:
        return self._builder.memories[use.node[1]].entry.attributes == "apart"

    def _aim(self, index: int, uses: list[_Use]) -> None:
        """Let the first live array that is all of stored array ``index`` take its bytes."""
        for use in uses:
            live = use.live
            if use.node[0] != "a" or live.strides is not None or live.dtype.swapped or use.is_cast:
                continue
            target = live.target() if live.nbytes == self._builder.memories[index].entry.nbytes else None
            if target is not None:
                self.targets[index] = target
                self._builder.lend(index, live.value)
                self._direct[index] = use
                return

    def direct_names(self) -> list[str]:
        """Return the names of the live arrays that take bytes directly."""
        return [name for index in self._direct for name in self.names_at(index)]

    def names_at(self, index: int) -> list[str]:
        """Return the names of the live arrays whose memory takes the bytes of stored array ``index`` directly."""
        if index not in self._direct:
            return []
        direct = self._direct[index]
        return [use.name for use in self._uses[index] if use is direct or overlapping([direct.live, use.live])]

    def land(self) -> None:
        """Copy what did not go directly, and tell torch what changed."""
        touched = [one.value for use in self._direct.values() for one in use.live.parts if one.kind == "torch"]
        if touched:
            adapter("torch").touched(touched)
        for index, uses in self._uses.items():
            if len(uses) == 1 and index in self._direct:
                continue
            memory = self._builder.memories[index]
            for use in uses:
                if isinstance(memory, ShardedBuffer) and isinstance(use.live, ShardedRef):
                    self._land_shards(index, use.live, memory)
                elif use.live.value is not memory.base:
                    self._copy(use, memory.base)

    def _land_shards(self, index: int, live: ShardedRef, memory: ShardedBuffer) -> None:
        """Copy the parts that came, or that another array over the stored one took directly."""
        direct = self._direct.get(index)
        if direct is None:
            memory.land(live)
        elif isinstance(direct.live, ShardedRef) and direct.live.address != live.address:
            memory.copy_between(direct.live, live)

    def _copy(self, use: _Use, base: Any) -> None:
        live = use.live
        if not live.nbytes:
            return
        _, *geometry = self._builder.geometry(_as_view(use), live.kind)
        if live.kind == "torch":
            adapter("torch").copy_into(live.value, show(base, "torch", None, geometry=geometry))
            return
        saved = show(base, "numpy", None, geometry=geometry)
        np.copyto(live.value, _cast(saved, live.dtype.name) if use.is_cast else saved, casting="equiv")


def _cast(array: Any, dtype: str) -> Any:
    """Return values as another dtype; what is too large for it becomes what the processor makes of it."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(array).astype(from_name(dtype))


def _as_view(use: _Use) -> list[Any]:
    """Return the view node of a use: all of the stored array, or the part its node says."""
    if use.node[0] == "v":
        return use.node
    return ["v", use.node[1], use.live.kind, use.dtype, list(use.live.shape), None, 0, "", 0]
