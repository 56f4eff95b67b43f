"""Reading: what a load of a saved checkpoint comes to."""

from __future__ import annotations

import re
import sys
from enum import Enum
from pathlib import Path

from bench.measuring.contenders import OURS, PEERS, Contender
from bench.measuring.states import State, many_small

from proof.child import ChildDied, result_of

CONTENDERS: list[Contender] = [OURS, *PEERS]


class Reading(Enum):
    """How a load ended."""

    SAME = "read as good, the values are those saved"
    OTHER = "read as good, with other values"
    NAMED = "refused by an error of the library's own that names a file or tensor"
    REFUSED = "refused by some other error"
    DIED = "the process crashed or hung"


def contender(name: str) -> Contender:
    """The library of that name."""
    return next(one for one in CONTENDERS if one.name == name)


def sample_state(elements: int) -> State:
    """What every trial saves: 24 tensors of ``elements`` floats, the same in every process."""
    return many_small(24, elements)


def read(name: str, folder: Path, elements: int) -> Reading:
    """Load what the library ``name`` saved in ``folder``, in another process, and compare it with what was saved."""
    try:
        with result_of(_read_here, name, folder, elements) as reading:
            return Reading[reading]
    except ChildDied:
        return Reading.DIED


def _read_here(name: str, folder: Path, elements: int) -> str:
    saved = sample_state(elements)
    live = saved.blank()
    try:
        contender(name).load(folder, live)
    except BaseException as error:  # noqa: BLE001 - the kind of error is the result, and that of DCP is no Exception
        return (Reading.NAMED if _names(error, folder, saved) else Reading.REFUSED).name
    return (Reading.SAME if live.equals(saved) else Reading.OTHER).name


def _names(error: BaseException, folder: Path, saved: State) -> bool:
    """Whether the error is of a class of the library's own and its message names a stored file or a tensor."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    plain = [path.stem for path in files if path.suffix and path.stem.isalpha()]  # "the manifest" for manifest.json
    tensors = [tensor for rows in saved.nested.values() for tensor in rows]
    own = type(error).__module__.partition(".")[0] not in sys.stdlib_module_names
    text = str(error)
    return own and any(
        re.search(rf"\b{re.escape(name)}\b", text) for name in (*(p.name for p in files), *plain, *tensors)
    )


__all__ = ["CONTENDERS", "Reading", "contender", "read", "sample_state"]
