"""Verb table: every verb of `mckpt`, where it is written, and how it is called. Importing it costs nothing."""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """One verb: the module of :mod:`.verbs` that has its function, the heading it stands under, and examples."""

    home: str
    heading: str
    examples: tuple[str, ...]
    function: str = ""  # where it is not called like the verb


LOOK, TRUST, KEEP, MOVE, CATALOG = "Look", "Trust", "Keep and let go", "Move", "Catalog and dashboard"

VERBS = {
    "ls": Verb(
        "inspecting",
        LOOK,
        (
            "mckpt ls runs/a",
            "mckpt ls runs/a --query 'val_loss < 0.3 tag:paper'",
            "mckpt ls runs",
            "mckpt ls s3://b/a --json",
        ),
    ),
    "show": Verb("inspecting", LOOK, ("mckpt show runs/a", "mckpt show runs/a@100 --tensors --parts model")),
    "cat": Verb("inspecting", LOOK, ('mckpt cat runs/a@100 model.weight --index "0:2,-1"', "mckpt cat runs/a epoch")),
    "diff": Verb("inspecting", LOOK, ("mckpt diff runs/a@100 runs/a@200 --parts model",)),
    "verify": Verb("verifying", TRUST, ("mckpt verify runs/a", "mckpt verify runs/a@100")),
    "repair": Verb(
        "verifying", TRUST, ("mckpt repair runs/a --dry-run", "mckpt repair runs/a --source s3://mirror/runs/a")
    ),
    "doctor": Verb("verifying", TRUST, ("mckpt doctor runs/a", "mckpt doctor --database postgresql://host/runs")),
    "bench": Verb("verifying", TRUST, ("mckpt bench runs/a", "mckpt bench /mnt/disk --size 1GB")),
    "prune": Verb(
        "retaining",
        KEEP,
        (
            "mckpt prune runs/a --keep last:3 --keep best:val_loss --dry-run",
            "mckpt prune runs/a --keep last:3 --keep best:val_loss --plan 0123456789abcdef",
        ),
    ),
    "forecast": Verb("retaining", KEEP, ("mckpt forecast runs/a --keep last:3",)),
    "pin": Verb("retaining", KEEP, ("mckpt pin runs/a@100",)),
    "unpin": Verb("retaining", KEEP, ("mckpt unpin runs/a@100",)),
    "tag": Verb("retaining", KEEP, ("mckpt tag runs/a@100 paper", "mckpt tag runs/a@100 paper --remove")),
    "note": Verb("retaining", KEEP, ('mckpt note runs/a@100 "before the new data"',)),
    "rm": Verb("trashing", KEEP, ("mckpt rm runs/a@100 runs/a@200", "mckpt rm runs/a@100 --dry-run")),
    "trash": Verb("trashing", KEEP, ("mckpt trash runs/a",)),
    "restore": Verb("trashing", KEEP, ("mckpt restore runs/a@100",)),
    "gc": Verb("trashing", KEEP, ("mckpt gc runs/a --dry-run", "mckpt gc runs/a --trash")),
    "export": Verb(
        "moving",
        MOVE,
        ("mckpt export runs/a@100 model.safetensors --parts model", "mckpt export runs/a@100 hf --folder"),
    ),
    "convert": Verb("moving", MOVE, ("mckpt convert old.pt runs/a", "mckpt convert runs/a@100 out --to dcp")),
    "adopt": Verb("moving", MOVE, ("mckpt adopt lightning_logs/version_0/checkpoints runs/a",)),
    "reindex": Verb("cataloging", CATALOG, ("mckpt reindex runs/a", "mckpt reindex runs/a --database sqlite:///r.db")),
    "experiments": Verb(
        "cataloging",
        CATALOG,
        ("mckpt experiments runs/a", "mckpt experiments experiments.db -q 'status:alive loss < 1'"),
    ),
    "metrics": Verb("cataloging", CATALOG, ("mckpt metrics runs/a", "mckpt metrics experiments.db baseline val_loss")),
    "lineage": Verb("cataloging", CATALOG, ("mckpt lineage runs/a", "mckpt lineage experiments.db baseline")),
    "sql": Verb(
        "cataloging", CATALOG, ('mckpt sql runs/a "select name, status from experiments"', "mckpt sql runs/a --tables")
    ),
    "serve": Verb("hosting", CATALOG, ("mckpt serve runs", "mckpt serve runs/a --port 8080 --no-browser")),
}

ALIASES = {"undo": "restore"}  # what older scripts say
