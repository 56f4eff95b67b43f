"""Options: what a caller can choose, and the sizes the format is built on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MIB = 1 << 20
GIB = 1 << 30
BYTE_UNITS = {"b": 1} | {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}
BYTE_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}


class CheckpointFormat(Enum):
    """How the tensors of one checkpoint are spread over data files."""

    SINGLE_FILE = "single_file"
    MULTI_SHARD = "multi_shard"
    CONSOLIDATED = "consolidated"


class CompressionLevel(Enum):
    """How hard to compress the bytes; digests are always of the raw ones."""

    NONE = "none"
    FAST = "fast"
    BALANCED = "balanced"
    MAXIMUM = "maximum"


class Verify(Enum):
    """How much a load checks: xxh3 of each chunk it touches, SHA-256 as well, or (mapped only) nothing."""

    FAST = "fast"
    FULL = "full"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutLimits:
    """Where a writer cuts: chunks inside a file, and files.

    Example:
        >>> LayoutLimits().chunk_bytes
        4194304
    """

    chunk_bytes: int = 4 * MIB
    file_bytes: int = 2 * GIB
    file_tensors: int = 50_000
    header_bytes: int = 8 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseLimits:
    """How far an incremental save trusts a file of an earlier one, since all that share it share its damage.

    Example:
        >>> ReuseLimits().links
        16
    """

    file_bytes: int = 64 * MIB  # incremental saves cut files here, so that one change costs little
    links: int = 16  # a file linked more often is written afresh
    seconds: float = 24 * 3600.0  # and so is one that was last known to be right longer ago


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderLimits:
    """What a reader grants a file it does not trust."""

    manifest_bytes: int = GIB
    header_bytes: int = 16 * MIB
    tensors_per_file: int = 100_000
    name_bytes: int = 1024
    rank: int = 64
    depth: int = 256  # arrays inside each other in a manifest; a container of a state is two
    frame_bytes: int = 64 * MIB  # what one compressed chunk may unpack to


_DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Graces:
    """How old leavings must be before recovery may touch them, in seconds.

    ``local``: the attempt of a dead process of this host and boot; ``foreign``: of any other host;
    ``trash``: a deleted checkpoint, which can be brought back until then. Where ``only`` names deletions by their
    tokens, ``trash`` is of those alone, and all others keep the day that everybody was promised.

    Example:
        >>> graces = Graces(trash=60.0, only=frozenset({"a"}))
        >>> graces.of_trash("a"), graces.of_trash("b")
        (60.0, 86400.0)
    """

    local: float = 60.0
    foreign: float = 24 * 3600.0
    trash: float = 24 * 3600.0
    only: frozenset[str] | None = None

    def of_trash(self, token: str) -> float:
        """Seconds that the deletion of this token can be undone for."""
        return self.trash if self.only is None or token in self.only else max(self.trash, _DAY)
