"""Arguments: what every benchmark that saves in rounds can be told."""

from __future__ import annotations

import argparse
from pathlib import Path


def rounds_parser(prog: str, description: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """A parser for the rounds, the sizes and the folder."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"interleaved rounds (default: {rounds})")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the full sizes, for quick runs")
    parser.add_argument("--folder", type=Path, default=Path("bench-run"), help="where to save; on the disk in question")
    return parser
