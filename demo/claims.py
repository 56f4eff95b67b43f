"""Claims: what the demo sets out to prove, and how it damages things to prove it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import model_checkpoint as mc


@dataclass(frozen=True)
class Claim:
    """One thing the demo sets out to prove."""

    text: str
    held: bool
    evidence: str


def flip_one_bit(info: mc.CheckpointInfo) -> Path:
    """Damage the largest data file of a checkpoint in its middle."""
    path = max(Path(info.path).glob("*.safetensors"), key=lambda p: p.stat().st_size)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    return path
