"""Objects: save to and load from a real S3 server, beside obstore's own parallel put and get of the same bytes."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import obstore
from tests.ground.object_servers import Server, seaweedfs

import model_checkpoint as mc
from bench.measuring.promises import Promise, judge
from model_checkpoint.storage import ObjectStore

MIB = 1 << 20
LIMIT = 1.3
OBJECTS = 4  # the peer's way to be parallel: so many objects at once, each in parts


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if we are slower than the limit."""
    parser = argparse.ArgumentParser(prog="bench.objects", description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="size of the state")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="mckpt-bench-") as folder, seaweedfs(Path(folder)) as server:
        server.make_bucket("bench")
        walls = measure(server, args.mib * MIB, args.rounds)
    return report(walls, args.mib * MIB)


def measure(server: Server, nbytes: int, rounds: int) -> dict[str, list[float]]:
    """Time every way once a round, in turned order, all on one server."""
    parts = [np.random.default_rng(i).integers(0, 256, nbytes // OBJECTS, dtype=np.uint8) for i in range(OBJECTS)]
    client = server.client("bench")
    store = ObjectStore("s3://bench/ours", store=client)
    walls: dict[str, list[float]] = {}

    def timed(name: str, act: Callable[[], object]) -> object:
        start = time.perf_counter()
        answer = act()
        walls.setdefault(name, []).append(time.perf_counter() - start)
        return answer

    def ours(number: int) -> None:
        timed("save: ours", lambda: mc.save(store, {"parts": parts}, step=number))
        back = timed("load: ours", lambda: mc.load(store, step=number))
        check(parts, back["parts"])
        obstore.delete(client, [item["path"] for page in obstore.list(client, "ours") for item in page])

    def peer(number: int) -> None:
        keys = [f"peer/{number}-{i}" for i in range(OBJECTS)]
        with ThreadPoolExecutor(OBJECTS) as pool:
            timed(
                "save: obstore",
                lambda: list(pool.map(lambda i: obstore.put(client, keys[i], parts[i]), range(OBJECTS))),
            )
            read = timed("load: obstore", lambda: list(pool.map(lambda key: obstore.get(client, key).bytes(), keys)))
        check(parts, [np.frombuffer(one, dtype=np.uint8) for one in read])
        obstore.delete(client, keys)

    def peer_one(number: int) -> None:
        key, data = f"peer/{number}", np.concatenate(parts)
        timed("save: obstore, one object", lambda: obstore.put(client, key, data))
        spans = [(at, min(at + 4 * MIB, nbytes)) for at in range(0, nbytes, 4 * MIB)]
        with ThreadPoolExecutor(OBJECTS) as pool:
            read = timed(
                "load: obstore, one object",
                lambda: list(pool.map(lambda s: obstore.get_range(client, key, start=s[0], end=s[1]), spans)),
            )
        check([data], [np.concatenate([np.frombuffer(one, dtype=np.uint8) for one in read])])
        obstore.delete(client, key)

    ways = [ours, peer, peer_one]
    for number in range(rounds + 1):
        for way in ways[number % 3 :] + ways[: number % 3]:
            way(number)
        if number == 0:
            walls.clear()  # the first round warms server and client up
    return walls


def check(saved: Sequence[np.ndarray], loaded: Sequence[np.ndarray]) -> None:
    """A figure for wrong bytes is worth nothing."""
    if not all(np.array_equal(a, b) for a, b in zip(saved, loaded, strict=True)):
        raise SystemExit("the bytes that came back are not those that were saved")


def report(walls: dict[str, list[float]], nbytes: int) -> int:
    """Print every way, then ours against the fastest peer."""
    for name, times in sorted(walls.items()):
        best, middle = min(times), sorted(times)[len(times) // 2]
        print(f"{name:28} best {best:7.3f} s  median {middle:7.3f} s  {nbytes / middle / 1e6:8.1f} MB/s")
    promises = []
    for act in ("save", "load"):
        peers = {name: sorted(times)[len(times) // 2] for name, times in walls.items() if name.startswith(act)}
        mine = peers.pop(f"{act}: ours")
        promises.append(Promise(f"{act}: time / the fastest peer's", mine / min(peers.values()), LIMIT))
    return judge(promises)


if __name__ == "__main__":
    sys.exit(main())
