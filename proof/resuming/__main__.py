"""Run the trials: ``python -m proof.resuming [--kills N] [--only NAME]``; a whole run writes ``docs/resuming.md``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from bench.measuring.machine import machine
from bench.measuring.report import grid

from proof.resuming.table import markdown, short_rows, way_rows
from proof.resuming.trial import Ending, Trial

_HERE = Path(__file__).resolve().parents[2]
_DOCS = _HERE / "docs" / "resuming.md"
TRAINERS = {  # the module of its ways, and what a program needs to know before it imports it
    "a loop by hand": ("hand_written", {}),
    "Hugging Face Trainer": ("huggingface_ways", {}),
    "Lightning": ("lightning_ways", {}),
    "Accelerate": ("accelerate_ways", {}),
    "Keras on torch": ("keras_ways", {"KERAS_BACKEND": "torch"}),
    "Keras on JAX": ("keras_ways", {"KERAS_BACKEND": "jax"}),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run all trials, print the counts, and write the report after a whole run; 0 if all of ours end the same."""
    parser = argparse.ArgumentParser(prog="proof.resuming", description=__doc__)
    parser.add_argument("--kills", type=int, default=3, help="kills of each kind of training, each way (default: 3)")
    parser.add_argument("--only", action="append", choices=list(TRAINERS), help="one trainer; writes no report")
    wish = parser.parse_args(argv)
    trials = [one for name in wish.only or TRAINERS for one in trials_of(name, kills=wish.kills)]
    print(grid(way_rows(trials)), grid(short_rows(trials)), sep="\n\n")
    if not wish.only:
        _DOCS.write_text(markdown(trials, here()), encoding="utf-8")
    return 0 if all(one.ending is Ending.SAME for one in trials if one.ours) else 1


def here() -> dict[str, str]:
    """What the trials ran on: the processor, and the versions of all trainers."""
    known = machine(_HERE)
    versions = {name: version(name) for name in ("transformers", "lightning", "accelerate", "keras", "torchdata")}
    return {name: known[name] for name in ("processor", "python", "torch", "numpy", "jax")} | versions


def trials_of(trainer: str, *, kills: int, kinds: Sequence[str] = ()) -> Iterator[Trial]:
    """The trials of one trainer, in a program of their own; of all its kinds of training, or of some."""
    ways, knows = TRAINERS[trainer]
    chosen = [word for kind in kinds for word in ("--kind", kind)]
    command = [sys.executable, "-W", "ignore", "-m", "proof.resuming.trial", ways, "--kills", str(kills), *chosen]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", **knows}
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            command, cwd=_HERE, env=environment, stdout=subprocess.PIPE, stderr=said, text=True
        ) as program,
    ):
        for line in program.stdout or ():
            way, ours, kind, ending = json.loads(line)
            print(f"{trainer}: {way}, {kind}: {Ending[ending].value}", flush=True)
            yield Trial(trainer, way, ours, kind, Ending[ending])
        if program.wait():
            said.seek(0)
            raise RuntimeError(f"{trainer}: the trials ended with code {program.returncode}: {said.read()[-2000:]}")


if __name__ == "__main__":
    raise SystemExit(main())
