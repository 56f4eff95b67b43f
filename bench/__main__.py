"""Run the benchmarks: ``python -m bench [names...] [--rounds N] [--scale F] [--json]``."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

# bf16 matrix products die on machines that advertise AMX but cannot run it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_SECTIONS = {
    "state": "training_state",
    "slice": "slices",
    "small": "small_tensors",
    "million": "million",
    "growth": "growth",
    "catalog": "catalog",
    "manager": "managed_saves",
}
# programs of their own, since they want a process to themselves: one thread, a tuned allocator, a server, peers
_PROGRAMS = {
    "async_stall": "Background saves",
    "compression": "Compression and incremental saves",
    "parity": "Parity and repair",
    "objects": "Object stores",
    "dcp_plug": "The plug for torch.distributed.checkpoint",
    "recompute": "Activation recomputation",
    "precision": "Mixed precision",
    "metrics": "Metric logging",
    "ranks": "Many ranks",
    "training_loop": "The training loop",
}
_DOCS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what was asked for, print it, and after a full run at full scale write it to the docs."""
    wish = _parser().parse_args(argv)
    known = [*_SECTIONS, *_PROGRAMS]
    unknown = [name for name in wish.names if name not in known]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    from bench.measuring import report
    from bench.measuring.machine import machine

    wish.folder.mkdir(parents=True, exist_ok=True)
    here, sections = machine(wish.folder), _measure(wish.names or known, wish, _say(quiet=wish.json))
    if wish.json:
        print(json.dumps(report.as_json(sections, here), indent=1))
    else:
        report.terminal(sections)
    if not wish.names and wish.scale == 1.0:
        _DOCS.write_text(report.markdown(sections, here, rounds=wish.rounds, scale=wish.scale), encoding="utf-8")
    return 0 if all(verdict.holds for section in sections for verdict in section.verdicts) else 1


def _measure(names: Sequence[str], wish: argparse.Namespace, say: Callable[[str], None]):
    folder: Path = wish.folder.resolve()
    try:
        return [
            _run(name, folder / "files", wish, say) if name in _SECTIONS else _run_program(name, say) for name in names
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which: {', '.join((*_SECTIONS, *_PROGRAMS))} (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the full sizes, for quick runs")
    parser.add_argument("--folder", type=Path, default=Path("bench-run"), help="where to save; on the disk in question")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


def _run(name: str, folder: Path, wish: argparse.Namespace, say: Callable[[str], None]):
    say(f"== {name}")
    return import_module(f"bench.sections.{_SECTIONS[name]}").run(folder, rounds=wish.rounds, scale=wish.scale, say=say)


def _run_program(name: str, say: Callable[[str], None]):
    from bench.measuring.results import Section, Verdict

    say(f"== {name}")
    lines = []
    with subprocess.Popen([sys.executable, "-m", f"bench.{name}"], stdout=subprocess.PIPE, text=True) as program:
        for line in program.stdout:
            say(line.rstrip())
            lines.append(line)
    title = _PROGRAMS[name]
    missed = Verdict(claim=f"{title}: targets missed, see below", value=abs(program.returncode), limit=0, unit="")
    intro = f"As `python -m bench.{name}` prints it."
    return Section(title=title, intro=intro, text="".join(lines).strip("\n"), verdicts=[missed])


def _say(*, quiet: bool) -> Callable[[str], None]:
    if quiet:
        return lambda text: None
    return lambda text: print(text, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
