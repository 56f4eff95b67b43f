"""Examine: all checks of one call, in order."""

from __future__ import annotations

from model_checkpoint.cli.checkup.catalog_checks import check_catalog
from model_checkpoint.cli.checkup.diagnosis import Diagnosis
from model_checkpoint.cli.checkup.machine_checks import check_machine
from model_checkpoint.cli.checkup.root_checks import check_root
from model_checkpoint.cli.checkup.torch_trial import TorchTrial


def examine(root: str = "", database: str = "") -> list[Diagnosis]:
    """Look at a root, its catalog and this machine; nothing is written.

    Example:
        >>> {one.topic for one in examine()} >= {"package", "torch"}
        True
    """
    with TorchTrial() as torch:
        found = check_root(root) if root else []
        return [*found, *check_catalog(root, database), *check_machine(torch)]
