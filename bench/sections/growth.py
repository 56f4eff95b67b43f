"""Growth: the same save and load in a root of ten checkpoints and in one of thousands; listing thousands on S3."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import msgspec
import obstore
import torch
from tests.ground.object_servers import seaweedfs

import model_checkpoint as mc
from bench.measuring.results import Section, Verdict
from bench.measuring.rounds import Say
from model_checkpoint.flushing import flush
from model_checkpoint.manifest import Manifest, decode, encode
from model_checkpoint.plan import step_name
from model_checkpoint.storage import ObjectStore

_FEW, _MANY = 10, 5000
_EACH = 15  # so many of each kind in one round
_PROCESSES = 3  # that come new in one round
_LISTDIR = "os.listdir, many"
_AFTER_SAVE, _FIRST = "load right after a save", "first load of a process"
_SETTLED = 0.1  # seconds after which what was listed is kept
_AT_ONCE = 64  # requests of the peer under way
_STATE = {"model": {"w": torch.arange(64.0)}, "epoch": 3}

_FIRST_LOADS = """
import sys, time
import torch
import model_checkpoint as mc

known, *roots = sys.argv[1:]
for _ in range(3):
    mc.load(known)
for root in roots:
    wall, cpu = time.perf_counter(), time.process_time()
    mc.load(root)
    print(time.perf_counter() - wall, time.process_time() - cpu)
"""

Times = dict[str, list[tuple[float, float]]]  # what was done -> wall and processor seconds of each


def run(folder: Path, *, rounds: int, scale: float, say: Say) -> Section:
    """Measure both roots side by side; each figure is the median of all."""
    many = max(20, round(_MANY * scale))
    roots = {"few": folder / "few", "many": folder / "many"}
    for name, root in roots.items():
        shutil.rmtree(root, ignore_errors=True)
        _populate(root, _FEW if name == "few" else many)
    times: Times = {}
    for number in range(rounds + 1):
        say(f"round {number}")
        seen: Times = {} if number == 0 else times  # the first one imports, compiles and warms up
        _round(folder, roots, seen, at=10**6 + number * _EACH)
        for _ in range(_PROCESSES):
            _first_loads(roots, seen)
    listing = _list_objects(many, rounds, say)
    growth = [
        Verdict(claim=f"{what} at {many:,} / at {_FEW} checkpoints", value=_ratio(times, what), limit=1.5)
        for what in ("save", "load newest", "load by step")
    ]
    growth += [
        Verdict(
            claim=f"{what} at {many:,} / at {_FEW} and one os.listdir of {many:,} names",
            value=_ratio_beside_listing(times, what),
            limit=1.5,
        )
        for what in (_AFTER_SAVE, _FIRST)
    ]
    tiny = Verdict(claim="tiny save / torch.save", value=_ratio(times, "tiny"), limit=4)
    pairs = zip(listing["list on S3"], listing["obstore's GET"], strict=True)
    claim = f"listing {many:,} on S3 / obstore's GET of as many"
    listed = Verdict(claim=claim, value=median(ours[0] / peer[0] for ours, peer in pairs), limit=3)
    return Section(
        title="Many checkpoints",
        intro=f"A state of 64 numbers in roots of {_FEW} and of {many:,} checkpoints; {rounds} rounds of {_EACH}. "
        "torch.save is followed by fsync of file and folder.",
        grid=[["what", "median ms", "processor ms"], *_rows(times | listing)],
        notes=[
            "A folder that stays as it is is read once; right after a save, and by a process that comes new, its names "
            "are read anew, which is the os.listdir beside it: who may have saved meanwhile, only the folder tells."
        ],
        verdicts=[*growth, tiny, listed],
    )


def _populate(root: Path, count: int) -> None:
    """One real save, and copies of it with steps of their own."""
    first = Path(mc.save(root, _STATE, step=0, metrics={"loss": 0.5}).path)
    manifest = decode((first / "manifest.json").read_bytes(), str(first))
    for step in range(1, count):
        copy = first.with_name(step_name(step))
        copy.mkdir()
        for file in first.glob("*.safetensors"):
            shutil.copyfile(file, copy / file.name)
        (copy / "manifest.json").write_bytes(_manifest_of(manifest, step))
    os.sync()


def _manifest_of(manifest: Manifest, step: int) -> bytes:
    """The manifest of a checkpoint that is like another one, but has files of its own."""
    files = tuple(msgspec.structs.replace(record, identity=f"{step:x}-{record.name}") for record in manifest.files)
    changed = msgspec.structs.replace(manifest, step=step, name=step_name(step), id=f"{step:032x}", files=files)
    return encode(changed)


def _round(folder: Path, roots: dict[str, Path], times: Times, *, at: int) -> None:
    """Everything once in both roots, by turns; each save is removed again, so that the roots keep their size."""
    for step in range(at, at + _EACH):
        for name, root in roots.items():
            info = _timed(times, f"save, {name}", lambda root=root, step=step: mc.save(root, _STATE, step=step))
            _timed(times, f"{_AFTER_SAVE}, {name}", lambda root=root: mc.load(root))
            shutil.rmtree(info.path)
        _timed(times, _LISTDIR, lambda: os.listdir(roots["many"] / "checkpoints"))
        _timed(times, "torch.save", lambda step=step: _torch_save(folder / "torch", step))
    time.sleep(_SETTLED)
    for root in roots.values():
        mc.load(root)
    for step in range(_EACH):
        for name, root in roots.items():
            _timed(times, f"load newest, {name}", lambda root=root: mc.load(root))
            _timed(times, f"load by step, {name}", lambda root=root, step=step: mc.load(root, step=step % _FEW))


def _first_loads(roots: dict[str, Path], times: Times) -> None:
    """The first load of each root in a process that has everything imported."""
    known = roots["few"].with_name("known")
    mc.save(known, _STATE, step=0, overwrite=True)
    command = [sys.executable, "-c", _FIRST_LOADS, str(known), *map(str, roots.values())]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    for name, line in zip(roots, told, strict=True):
        wall, cpu = map(float, line.split())
        times.setdefault(f"{_FIRST}, {name}", []).append((wall, cpu))


def _torch_save(folder: Path, step: int) -> None:
    folder.mkdir(exist_ok=True)
    with open(folder / f"{step}.pt", "wb") as file:
        torch.save(_STATE, file)
        file.flush()
        os.fsync(file.fileno())
    flush(folder)


def _timed(times: Times, what: str, act: Callable[[], object]):
    wall, cpu = time.perf_counter(), time.process_time()
    answer = act()
    times.setdefault(what, []).append((time.perf_counter() - wall, time.process_time() - cpu))
    return answer


def _ratio(times: Times, what: str) -> float:
    """The median of the ratios of what was done side by side."""
    above, below = ("save, few", "torch.save") if what == "tiny" else (f"{what}, many", f"{what}, few")
    return median(a / b for (a, _), (b, _) in zip(times[above], times[below], strict=True))


def _ratio_beside_listing(times: Times, what: str) -> float:
    """The same, where the names of the folder are read beside."""
    listing = median(wall for wall, _ in times[_LISTDIR])
    pairs = zip(times[f"{what}, many"], times[f"{what}, few"], strict=True)
    return median(many / (few + listing) for (many, _), (few, _) in pairs)


def _rows(times: Times) -> Iterator[list[str]]:
    for what, pairs in times.items():
        walls, cpus = zip(*pairs, strict=True)
        yield [what, f"{median(walls) * 1e3:.2f}", f"{median(cpus) * 1e3:.2f}"]


def _list_objects(count: int, rounds: int, say: Say) -> Times:
    """List checkpoints of a real S3 server, and get as many small objects, by turns."""
    times: Times = {}
    with tempfile.TemporaryDirectory(prefix="mckpt-bench-") as folder, seaweedfs(Path(folder)) as server:
        server.make_bucket("bench")
        client = server.client("bench")
        store = ObjectStore("s3://bench/ours", store=client)
        mc.save(store, _STATE, step=0, metrics={"loss": 0.5})
        manifest = decode(store.read_manifest(step_name(0)), "s3")
        copies = {}
        for step in range(1, count):
            copies[f"ours/checkpoints/{step_name(step)}/manifest.json"] = _manifest_of(manifest, step)
        asyncio.run(_each(list(copies), lambda key: obstore.put_async(client, key, copies[key])))
        keys = [f"ours/checkpoints/{step_name(step)}/manifest.json" for step in range(count)]
        for number in range(rounds + 1):
            seen: Times = {} if number == 0 else times
            found = _timed(seen, "list on S3", lambda: mc.list_checkpoints(store))
            _timed(seen, "obstore's GET", lambda: asyncio.run(_each(keys, lambda key: _get(client, key))))
            if len(found) != count or any(info.problem for info in found):
                raise RuntimeError(f"listed {len(found)} of {count} checkpoints")
        say(f"listed {count:,} checkpoints on S3")
    return times


async def _get(client: object, key: str) -> None:
    await (await obstore.get_async(client, key)).bytes_async()


async def _each(keys: list[str], act: Callable[[str], object]) -> None:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(key: str) -> None:
        async with gate:
            await act(key)

    await asyncio.gather(*map(one, keys))
