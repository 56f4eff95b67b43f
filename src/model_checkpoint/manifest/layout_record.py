"""Layout record: which rank holds which part of an array."""

from __future__ import annotations

import msgspec


class Placement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one dimension of a mesh does to an array."""

    dim: int = -1  # which dimension of the array it cuts; -1: each of its ranks has the same
    split: int = 0  # cut so often before, as torch's strided shards are; 0: a plain cut

    @property
    def replicated(self) -> bool:
        """Whether all ranks along this dimension of the mesh hold the same."""
        return self.dim < 0


class HeldRegion(msgspec.Struct, frozen=True, array_like=True):
    """One box of an array, and the ranks that hold it."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    ranks: tuple[int, ...]


class Layout(msgspec.Struct, frozen=True, array_like=True):
    """How an array lies on the ranks: cut along a mesh of them, or in regions that are listed one by one."""

    mesh: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()  # of the mesh, in C order
    placements: tuple[Placement, ...] = ()  # one for each dimension of the mesh
    nested: bool = False  # strided cuts are made after those to the right of them, as FSDP2 does, not as its spec says
    regions: tuple[HeldRegion, ...] = ()  # if there are, they decide, and a mesh is one of devices, for people
    names: tuple[str, ...] = ()  # of the mesh's dimensions, where they have some
