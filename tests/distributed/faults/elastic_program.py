"""What torchrun starts: ranks that train and save; in the first start some die in a step, or wait for more to come."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from tests.distributed.scenes import train, wrapped

import model_checkpoint as mc
from model_checkpoint.distributed import TorchCoordinator


def main(root):
    dist.init_process_group("gloo")
    ranks = TorchCoordinator(patience=60.0)
    model = wrapped("fsdp", ranks.world_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    run = {"model": model, "optimizer": optimizer, "step": 0}
    with contextlib.suppress(mc.CheckpointNotFound):  # on the first start
        mc.load(root, into=run, coordinator=ranks)
    for step in range(run["step"] + 1, 7):
        (loss,) = train(model, optimizer, [step])
        if ranks.rank == 0:
            with open(root / f"losses-{os.environ['TORCHELASTIC_RESTART_COUNT']}", "a") as stream:
                stream.write(f"{step} {loss!r}\n")
        if (step, os.environ.get("NODE"), ranks.world_size) == (4, "grows", 2):
            (root / "alone").touch()
            signal.pause()  # until torchrun ends this start, because a node has come
        if (step, os.environ["TORCHELASTIC_RESTART_COUNT"]) == (4, "0"):
            die(ranks.rank)
        mc.save(root, run | {"step": step}, step=step, coordinator=ranks)
    dist.destroy_process_group()


def die(rank):
    """Lose a whole node, if there are two, with the agent that would start its ranks again; else one rank."""
    node = os.environ.get("NODE", "only")
    if node == "lost":
        os.kill(os.getppid(), signal.SIGKILL)
    if node == "lost" or (node == "only" and rank == 1):
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
