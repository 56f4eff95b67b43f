"""What each of two JAX processes runs: they save and load together."""

import sys
from pathlib import Path


def main(root, rank, port):
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
    live = {"rows": laid(whole * 0, None, "x"), "same": laid(whole * 0, "x")}
    told = mc.load(root / "laid", into=live, coordinator=ranks)
    for name, values in (("rows", whole), ("same", whole + 1)):
        assert told[name].sharding == live[name].sharding
        for shard in told[name].addressable_shards:
            assert np.array_equal(np.asarray(shard.data), values[shard.index])
    assert np.array_equal(mc.load(root / "laid", framework="numpy")["rows"], whole)
    (root / f"loaded-{rank}").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
