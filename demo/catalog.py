"""The second act: three runs in a catalog, the best of them, what may go and why, and a damaged file rebuilt."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape

import model_checkpoint as mc
from demo.claims import Claim, flip_one_bit
from model_checkpoint import EnhancedCheckpointManager, ExperimentTracker

RATES = (1.0, 0.1, 0.001)
STEPS, EVERY = 40, 5


def train(manager: EnhancedCheckpointManager, run: ExperimentTracker, rate: float) -> float:
    """Fit a line; return the lowest loss that was saved."""
    torch.manual_seed(0)
    x = torch.randn(256, 16)
    y = x @ torch.arange(16.0) / 16
    model, lowest = torch.nn.Linear(16, 1), float("inf")
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for step in range(1, STEPS + 1):
        loss = (model(x).squeeze(1) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log_metrics({"loss": loss}, step=step)
        if step % EVERY == 0:
            manager.save_checkpoint(model, optimizer, step=step, loss=loss.item())
            lowest = min(lowest, loss.item())
    return lowest


def prove_catalog(folder: Path, console: Console) -> list[Claim]:
    """Three runs, the best model, a plan with reasons, a repair from parity."""
    url, root = f"sqlite:///{folder / 'experiments.db'}", folder / "catalog"
    lowest: dict[str, float] = {}
    for rate in RATES:
        with (
            ExperimentTracker(f"lr {rate:g}", config={"lr": rate}, database_url=url) as run,
            EnhancedCheckpointManager(run, root, max_checkpoints=None, parity="xor") as manager,
        ):
            lowest[run.experiment_id] = train(manager, run, rate)
            console.print(f"run [bold]lr {rate:g}[/]: lowest saved loss {lowest[run.experiment_id]:.3g}")
    winner = min(lowest, key=lambda one: lowest[one])
    with (
        ExperimentTracker.resume(winner, url) as run,
        EnhancedCheckpointManager(run, root, max_checkpoints=None) as manager,
    ):
        best = manager.load_checkpoint(checkpoint_type="best_loss")
        plan = manager.plan(keep=[mc.last(2), mc.best("loss"), mc.every(20)])
        console.print(escape(plan.summary().replace(str(folder), "...")), soft_wrap=True)
        manager.prune(plan=plan)
        left = sorted(row.step for row in manager.list_checkpoints())
    return [
        Claim(
            "the best of three runs is found in the catalog",
            best["loss"] == lowest[winner],
            f"loss {best['loss']:.3g} at step {best['step']}",
        ),
        Claim(
            "what goes is what was previewed, with reasons",
            left == sorted(one.candidate.step for one in plan.kept),
            f"{len(plan.dropped)} dropped, steps {left} stay",
        ),
        _prove_repair(root, console),
    ]


def _prove_repair(root: Path, console: Console) -> Claim:
    mc.finish_saves(root)  # parity is made behind the acknowledgement
    newest = mc.list_checkpoints(root)[0]
    files = {path.name: path.read_bytes() for path in Path(newest.path).iterdir()}
    path = flip_one_bit(newest)
    console.print(f"[red]flipped one bit[/] of {path.name}, and the file is rebuilt from parity")
    report = mc.repair(root, newest.prefix)
    same = {path.name: path.read_bytes() for path in Path(newest.path).iterdir()} == files
    return Claim("a damaged file is rebuilt bit for bit", report.ok and same, f"{path.name} from parity")
