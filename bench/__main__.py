"""Run the benchmarks: ``python -m bench [names...] [--rounds N] [--scale F] [--json]``."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

# bf16 matrix products die on machines that advertise AMX but cannot run it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_SECTIONS = {"state": "training_state", "slice": "slices", "small": "small_tensors", "million": "million"}
# benchmarks with a report of their own, where they are present
_OTHERS = ("async_stall", "squeeze", "objects", "recompute", "precision")
_DOCS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what was asked for, print it, and after a full run at full scale write it to the docs."""
    wish = _parser().parse_args(argv)
    others = [name for name in _OTHERS if find_spec(f"bench.{name}") is not None]
    known = [*_SECTIONS, *others]
    unknown = [name for name in wish.names if name not in known]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = wish.names or known
    code = _run_own([name for name in chosen if name in _SECTIONS], wish, full=not wish.names)
    for name in chosen:
        if name in others:
            code = import_module(f"bench.{name}").main([]) or code
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which: {', '.join((*_SECTIONS, *_OTHERS))} (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the full sizes, for quick runs")
    parser.add_argument("--folder", type=Path, default=Path("bench-run"), help="where to save; on the disk in question")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


def _run_own(names: Sequence[str], wish: argparse.Namespace, *, full: bool) -> int:
    if not names:
        return 0
    from bench import report
    from bench.machine import machine

    folder: Path = wish.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    here, say = machine(folder), _say(quiet=wish.json)
    try:
        sections = [_run(name, folder / "files", wish, say) for name in names]
    finally:
        shutil.rmtree(folder)
    if wish.json:
        print(json.dumps(report.as_json(sections, here), indent=1))
    else:
        report.terminal(sections)
    if full and wish.scale == 1.0:
        _DOCS.parent.mkdir(exist_ok=True)
        _DOCS.write_text(report.markdown(sections, here, rounds=wish.rounds, scale=wish.scale), encoding="utf-8")
    return 0


def _run(name: str, folder: Path, wish: argparse.Namespace, say: Callable[[str], None]):
    say(f"== {name}")
    return import_module(f"bench.{_SECTIONS[name]}").run(folder, rounds=wish.rounds, scale=wish.scale, say=say)


def _say(*, quiet: bool) -> Callable[[str], None]:
    if quiet:
        return lambda text: None
    return lambda text: print(text, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
