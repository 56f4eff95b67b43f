"""Catalog reasons: why the checkpoints of a root stay, as the catalog of that root tells."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from model_checkpoint.cli.finding.catalogs import root_catalog_url
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.errors import CheckpointException

if TYPE_CHECKING:  # most roots have no catalog
    from model_checkpoint.checkpoint.keeping.kept_reasons import KeptReason

log = logging.getLogger("model_checkpoint.cli")


def catalog_reasons(
    root: str, infos: Sequence[CheckpointInfo], database: str = ""
) -> dict[str, tuple[KeptReason, ...]]:
    """The reasons of each checkpoint that the catalog knows, by id; nothing where there is no catalog.

    Example:
        >>> catalog_reasons("memory://doc-reasons", [])
        {}
    """
    url = root_catalog_url(root, database)
    if url is None:
        return {}
    from model_checkpoint.checkpoint.keeping.kept_reasons import kept_reasons
    from model_checkpoint.database.local.opened_reader import open_reader

    try:
        with open_reader(url) as catalog:
            return kept_reasons(catalog, catalog.get_checkpoints([info.id for info in infos]))
    except CheckpointException as error:
        log.warning("the catalog could not be asked why checkpoints stay: %s", error)
        return {}
