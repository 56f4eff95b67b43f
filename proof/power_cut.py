"""Power cut: the plug is pulled when a save has returned; what is left is mounted again and loaded."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from bench.measuring.disk import flush_tree
from tests.ground.disks.power import Disk

from proof.child import result_of
from proof.reading import Reading, contender, read, sample_state

_ELEMENTS = 65_536  # 6 MiB in all


class Ending(Enum):
    """What became of a save that had been acknowledged."""

    KEPT = "loads, and the values are those saved"
    GONE = "not a file of it is left"
    TORN = "something is left, and does not load"
    WRONG = "loads without an error, with other values"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One trial."""

    contender: str
    disk: str  # kind of file system
    flushed: bool  # by the caller, after the library's call
    ending: Ending


class HarnessBroken(RuntimeError):
    """A save that lost no power did not load, so that the trials would prove nothing."""


def save_here(name: str, folder: Path, flushed: bool, elements: int = _ELEMENTS) -> None:
    """Save as the library's documentation shows it, and flush every file and folder if asked to."""
    contender(name).write(folder, sample_state(elements))
    if flushed:
        flush_tree(folder)


def cut_power(disk: Disk, kind: str, name: str, *, flushed: bool) -> Cut:
    """Save into a durable empty folder, cut the power once the save has returned, mount again and load."""
    folder = _empty_folder(disk)
    with result_of(save_here, name, folder, flushed):
        disk.cut()
    _mount_again(disk)
    left = any(path.is_file() for path in folder.rglob("*"))
    return Cut(contender=name, disk=kind, flushed=flushed, ending=_ending(read(name, folder, _ELEMENTS), left=left))


def check_harness(disk: Disk, name: str) -> None:
    """Demand that without a cut the same save is there after the same unmounting and mounting."""
    folder = _empty_folder(disk)
    with result_of(save_here, name, folder, False):
        pass
    _mount_again(disk)
    reading = read(name, folder, _ELEMENTS)
    if reading is not Reading.SAME:
        raise HarnessBroken(f"{name}: without a power cut its save is {reading.value!r}. Mend the trial first.")


def _empty_folder(disk: Disk) -> Path:
    folder = disk.mount_point / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    _mount_again(disk)
    return folder


def _mount_again(disk: Disk) -> None:
    disk.unmount()
    disk.mount()


def _ending(reading: Reading, *, left: bool) -> Ending:
    if reading is Reading.SAME:
        return Ending.KEPT
    if reading is Reading.OTHER:
        return Ending.WRONG
    return Ending.TORN if left else Ending.GONE


__all__ = ["Cut", "Ending", "HarnessBroken", "check_harness", "cut_power", "save_here"]
