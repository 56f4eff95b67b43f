"""Run the demo; the exit code is 0 only if every claim held."""

from __future__ import annotations

import logging
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

import model_checkpoint as mc
from demo.catalog import prove_catalog
from demo.claims import Claim, flip_one_bit
from demo.train import BATCHES, EPOCHS
from model_checkpoint.errors import ChunkMismatch

STEPS, EVERY = EPOCHS * BATCHES, 5
KEPT = Path(__file__).resolve().parent.parent / "demo-run"  # until the next demo, so that it can be looked at
console = Console(highlight=False)


def read_losses(path: Path) -> dict[int, str]:
    """Losses by step; after a resume the later line of a step stands."""
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return {int(parts[0]): parts[1] for parts in lines if len(parts) == 2}


def start(root: Path, losses: Path, every: int = EVERY) -> subprocess.Popen[bytes]:
    """Start one training process."""
    return subprocess.Popen([sys.executable, "-m", "demo.train", str(root), str(losses), str(every)])


def follow(title: str, process: subprocess.Popen[bytes], losses: Path) -> None:
    """Show the progress of a training process until it ends."""
    columns = (TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=STEPS)
        while process.poll() is None:
            bar.update(task, completed=max(read_losses(losses), default=0))
            time.sleep(0.1)
        bar.update(task, completed=max(read_losses(losses), default=0))


def _has_bytes(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:  # committed since it was listed
        return False


def kill_in_mid_save(root: Path, process: subprocess.Popen[bytes]) -> list[str]:
    """Wait for two committed checkpoints, then SIGKILL while a third is being written; return what it left."""
    staging, deadline = root / ".staging", time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        committed = len(list(root.glob("checkpoints/*/manifest.json")))
        writing = [path for path in staging.glob("*/*.safetensors") if _has_bytes(path)]
        if committed >= 2 and writing:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.0005)
    process.wait()
    return sorted(p.name for p in staging.glob("*") if p.is_dir()) if staging.exists() else []


def prove_resume(folder: Path) -> list[Claim]:
    """Kill a run in the middle of a save and compare the resumed run with an unbroken one."""
    reference = start(folder / "unbroken", folder / "unbroken.txt", every=0)
    follow("unbroken run, no saves", reference, folder / "unbroken.txt")
    root, losses = folder / "run", folder / "run.txt"
    left = kill_in_mid_save(root, broken := start(root, losses))
    steps, reached = [info.step for info in mc.list_checkpoints(root)], max(read_losses(losses))
    whole = all(health.ok for health in mc.verify(root))
    console.print(f"[red]SIGKILL[/] in the middle of a save; committed so far: steps {sorted(s for s in steps if s)}")
    follow("resumed from the newest committed", resumed := start(root, losses), losses)
    expected, got = read_losses(folder / "unbroken.txt"), read_losses(losses)
    same = sum(got.get(step) == loss for step, loss in expected.items())
    newest = max(s for s in steps if s is not None)
    return [
        Claim(
            "killed in the middle of a save",
            broken.returncode == -9 and bool(left),
            f"{len(left)} unfinished attempt left",
        ),
        Claim(
            "the torn save is invisible to readers",
            whole and reached > newest,
            f"killed at step {reached}, newest committed is {newest}, and whole",
        ),
        Claim(
            "loss curve is bit-identical to the unbroken run",
            same == STEPS == len(got) and resumed.returncode == 0,
            f"{same} of {STEPS} losses equal",
        ),
    ]


def prove_damage(folder: Path) -> list[Claim]:
    """Flip a bit in the newest checkpoint, read the error, fall back."""
    infos = mc.list_checkpoints(folder / "run")
    healthy = all(health.ok for health in mc.verify(folder / "run"))
    path = flip_one_bit(infos[0])
    console.print(f"[red]flipped one bit[/] of {path.name}")
    try:
        mc.load(folder / "run", framework="torch")
        error = None
    except ChunkMismatch as caught:
        error = caught
        told = escape(str(caught).replace(str(folder), "..."))
        console.print(f"[yellow]{type(caught).__name__}[/]: {told}", soft_wrap=True)
    logging.getLogger("model_checkpoint.load").setLevel(logging.ERROR)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        state = mc.load(folder / "run", framework="torch", fallback=True)
    for one in warned:
        told = escape(str(one.message).replace(str(folder), "..."))
        console.print(f"[yellow]{one.category.__name__}[/]: {told}", soft_wrap=True)
    place = state["run"]["place"]
    named = error is not None and bool(error.tensor) and error.chunk is not None
    where = f"{error.tensor}, chunk {error.chunk}" if error else "no error"
    return [
        Claim("every byte verifies after the resume", healthy, f"{len(infos)} checkpoints, SHA-256"),
        Claim("one flipped bit is refused, with its address", named, where),
        Claim("fallback loads the newest healthy step", place["step"] == infos[1].step, f"step {place['step']}"),
    ]


def main() -> int:
    """Prove every claim and print the verdicts."""
    started = time.monotonic()
    shutil.rmtree(KEPT, ignore_errors=True)  # of an earlier demo
    KEPT.mkdir()
    acts = (prove_resume, prove_damage, lambda where: prove_catalog(where, console))
    claims = [claim for act in acts for claim in act(KEPT)]
    evidence = Column("evidence", overflow="fold")
    table = Table("claim", evidence, "held", title=f"model_checkpoint demo, {time.monotonic() - started:.0f} s")
    for claim in claims:
        table.add_row(claim.text, claim.evidence, "[green]yes[/]" if claim.held else "[red]NO[/]")
    console.print(table)
    console.print(f"All of it is still in [bold]{KEPT.name}/[/]. Look at it in a browser: [bold]make demo-serve[/]")
    return 0 if all(claim.held for claim in claims) else 1


if __name__ == "__main__":
    sys.exit(main())
