"""Make the golden checkpoint of the current format: ``python tests/golden/make.py``.

Run it once for a new format version, never to make a failing test pass: what it holds must stay readable for ever.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

import model_checkpoint as mc
from model_checkpoint.distributed import LocalCoordinator, Shard
from model_checkpoint.manifest.record import FORMAT_VERSION

HERE = Path(__file__).parent


def golden_state():
    """A state with every kind of node that needs no class of ours; the same numbers on every machine."""
    weight = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    base = np.arange(8, dtype=np.int64)
    parameter = torch.nn.Parameter(weight.clone())
    optimizer = torch.optim.SGD([parameter], lr=0.5, momentum=0.5)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return {
        "model": {"weight": weight, "tied": weight, "row": weight[1], "a.b": torch.tensor(True), "__metadata__": 1},
        "optimizer": optimizer.state_dict(),
        "torch": {
            "bf16": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
            "fp8": torch.tensor([0.5, 448.0]).to(torch.float8_e4m3fn),
            "c64": torch.tensor([1 + 2j], dtype=torch.complex64),
            "empty": torch.zeros((0, 3)),
            "scalar": torch.tensor(7),
            "dtype": torch.bfloat16,
            "size": torch.Size([2, 3]),
        },
        "numpy": {
            "c128": np.array([1 - 1j, complex("nan")]),
            "big": np.array([1, 2], dtype=">u2"),
            "time": np.array(["2026-01-02", "NaT"], dtype="M8[s]"),
            "text": np.array(["ab", "\u00fc"]),
            "record": np.array([(1, 2.5)], dtype=[("n", "<i4"), ("x", "<f8")]),
            "view": base[2:6],
            "base": base,
            "scalar": np.float32(0.1),
        },
        "plain": [
            None,
            True,
            -(2**80),
            float("nan"),
            float("-inf"),
            -0.0,
            "text\n\u00fc",
            b"\x00\xff",
            2 + 3j,
            (1, (), {}),
        ],
        1: "an integer key",
        "1": "a text key",
        "set": {1, 2},
        "step": 3,
    }


def make_ranks(root: Path) -> None:
    """Write what two ranks hold of one array; made once with and once without digests of parts of chunks."""
    whole, half = (np.arange(1 << 20) // 4096).astype(np.uint8), 1 << 19

    def save(ranks: LocalCoordinator) -> None:
        part = whole[ranks.rank * half :][:half].copy()
        state = {"x": Shard(part, global_shape=whole.shape, offsets=(ranks.rank * half,)), "epoch": 3}
        mc.save(root, state, step=3, coordinator=ranks)

    with ThreadPoolExecutor(2) as team:
        list(team.map(save, LocalCoordinator.group(2)))
    (root / ".staging").rmdir()


def main() -> None:
    """Write the checkpoint, in place of an old one."""
    root = HERE / f"format-{FORMAT_VERSION}"
    shutil.rmtree(root, ignore_errors=True)
    mc.save(root, golden_state(), step=3, metrics={"val_loss": 0.25}, metadata={"note": ["golden", None]})
    (root / ".staging").rmdir()


if __name__ == "__main__":
    main()
