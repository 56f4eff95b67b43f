"""Table: the counts as Markdown for the docs, the README and the pages of the trainers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from bench.measuring.report import grid

from proof.resuming.trial import Ending, Trial

_INTRO = """# Killed and started again

Written by `python -m proof.resuming`, a part of `make proof`. The same training (model, data with random
augmentation, workers, accumulation, mixed precision where the kind says so) is saved and resumed by this library, and
by the trainer's own means as its documentation shows them, with all seeds set: `resume_from_checkpoint` and
`data_seed=` of the Trainer; `ModelCheckpoint`, `ckpt_path="last"` and `seed_everything(workers=True)` of Lightning;
`save_state`, `load_state`, `use_seedable_sampler=True` and `skip_first_batches` of Accelerate;
`BackupAndRestore(double_checkpoint=True)` of Keras; a loop by hand that saves model, optimizer, schedule, scaler,
averages, place and all generators with `torch.save`. Loaders with a state of their own (`StatefulDataLoader`) are
tried where a trainer knows them.

Every trial is one SIGKILL to the training and its workers after the first save, in a batch drawn at random, the same
one for each way; then it is started again. Before that a training by the trainer's own means runs twice without a
kill, and must end alike. Under ours everything must be the same at the end: weights, moments, schedule, scaler,
generators, what was logged. Of theirs the weights alone are compared.

- same: ends as the unbroken training
- other: ends with other weights
- fails: raises an error when it is started again: the kill met a save, or what a hook needs did not come back
"""


def markdown(trials: Sequence[Trial], machine: Mapping[str, str]) -> str:
    """The whole report."""
    day = datetime.now(UTC).date().isoformat()
    head = "; ".join([*(f"{key} {value}" for key, value in machine.items()), day])
    short, ways, kinds = short_rows(trials), way_rows(trials), _kind_rows(trials)
    parts = [_INTRO, f"Tried on: {head}.\n", "## In short\n", grid(short), "", "## By way\n", grid(ways), ""]
    return "\n".join([*parts, "## By kind of training\n", grid(kinds)]) + "\n"


def short_rows(trials: Sequence[Trial]) -> list[list[str]]:
    """One column per trainer: how many killed trainings end as the unbroken one."""
    trainers = list(dict.fromkeys(one.trainer for one in trials))
    rows = [["killed once, ends as the unbroken training", *trainers]]
    for title, ours in (("under model_checkpoint", True), ("by the trainer's own checkpoints", False)):
        counts = [_share([one for one in trials if (one.trainer, one.ours) == (name, ours)]) for name in trainers]
        rows.append([title, *(f"**{count}**" if ours else count for count in counts)])
    return rows


def _share(trials: Sequence[Trial]) -> str:
    return f"{sum(one.ending is Ending.SAME for one in trials)} of {len(trials)}"


def way_rows(trials: Sequence[Trial]) -> list[list[str]]:
    """One row for each way to save and resume."""
    rows = [["trainer", "saved and resumed by", "kills", "same", "other", "fails"]]
    for key in dict.fromkeys((one.trainer, one.way) for one in trials):
        endings = [one.ending for one in trials if (one.trainer, one.way) == key]
        counts = [endings.count(ending) for ending in (Ending.SAME, Ending.OTHER, Ending.FAILED)]
        rows.append([key[0], f"`{key[1]}`", *map(str, (len(endings), *counts))])
    return rows


def _kind_rows(trials: Sequence[Trial]) -> list[list[str]]:
    words = {Ending.SAME: "same", Ending.OTHER: "other", Ending.FAILED: "fails"}
    rows = [["trainer", "kind of training", "saved and resumed by", "endings"]]
    keys = dict.fromkeys((one.trainer, one.kind, one.way) for one in trials)
    for key in sorted(keys, key=lambda key: (list(dict.fromkeys(one[0] for one in keys)).index(key[0]), key[1])):
        endings = [words[one.ending] for one in trials if (one.trainer, one.kind, one.way) == key]
        rows.append([key[0], key[1], f"`{key[2]}`", ", ".join(endings)])
    return rows


__all__ = ["markdown", "short_rows", "way_rows"]
