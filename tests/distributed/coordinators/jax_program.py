"""What each of two JAX processes runs: they save and load together, then one of them dies in a save."""

import os
import signal
import sys
from pathlib import Path


def save_and_die(root, rank, victim):
    """Rank 0 dies before it publishes, rank 1 while it writes."""
    import model_checkpoint as mc
    from model_checkpoint.distributed import JaxCoordinator
    from model_checkpoint.storage.local.store import LocalStore
    from model_checkpoint.storage.local.syscalls import Syscalls

    class Trapped(Syscalls):
        def pwrite(self, fd, data, offset):
            if rank == victim == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().pwrite(fd, data, offset)

        def rename(self, source, target, **folders):
            if rank == victim == 0 and "checkpoints" in target:
                os.kill(os.getpid(), signal.SIGKILL)
            super().rename(source, target, **folders)

    try:
        mc.save(LocalStore(root, calls=Trapped()), {"own": rank}, step=4, coordinator=JaxCoordinator(patience=4.0))
    except mc.CheckpointException as error:
        (root / f"told-{rank}").write_text(f"{type(error).__name__} {error}")
    os._exit(0)


def main(root, rank, port, victim):
    import jax

    jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
    import numpy as np

    import model_checkpoint as mc
    from model_checkpoint.distributed import JaxCoordinator

    jax.devices()
    for step in (1, 2, 3):
        state = {"w": np.arange(1 << 20), "own": rank, "key": jax.random.key(7)}
        mc.save(root, state, step=step, coordinator=JaxCoordinator(patience=60.0))
    loaded = mc.load(root, coordinator=JaxCoordinator(patience=60.0))
    assert np.array_equal(loaded["w"], np.arange(1 << 20))
    assert loaded["own"] == rank
    mesh = jax.sharding.Mesh(jax.devices(), ("x",))
    whole = np.arange(6 * 4, dtype=np.float32).reshape(6, 4)

    def laid(values, *axes):
        spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
        return jax.make_array_from_callback(whole.shape, spec, lambda index: values[index])

    ranks = JaxCoordinator(patience=60.0)
    mc.save(root / "laid", {"rows": laid(whole, "x"), "same": laid(whole + 1)}, step=1, coordinator=ranks)
    seen = mc.describe(root / "laid")
    told = [seen.layouts[line.layout] for line in seen.tensors]
    assert [(one.mesh, one.names, one.ranks) for one in told] == [((2,), ("x",), (0, 1))] * 2
    assert [one.placements for one in told] == [("Shard(0)",), ("Replicate()",)]
    live = {"rows": laid(whole * 0, None, "x"), "same": laid(whole * 0, "x")}
    told = mc.load(root / "laid", into=live, coordinator=ranks)
    for name, values in (("rows", whole), ("same", whole + 1)):
        assert told[name].sharding == live[name].sharding
        for shard in told[name].addressable_shards:
            assert np.array_equal(np.asarray(shard.data), values[shard.index])
    assert np.array_equal(mc.load(root / "laid", framework="numpy")["rows"], whole)
    (root / f"loaded-{rank}").touch()
    save_and_die(root, rank, victim)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
