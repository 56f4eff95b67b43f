"""Catalog checks: whether a catalog is there, can be reached, and is of a schema this version knows."""

from __future__ import annotations

from shlex import quote

from model_checkpoint.cli.checkup.diagnosis import Diagnosis, bad, good, note
from model_checkpoint.cli.finding.catalogs import root_catalog_url
from model_checkpoint.errors import CheckpointException


def check_catalog(root: str, database: str) -> list[Diagnosis]:
    """Look at the catalog that goes with a root, or is named."""
    if not root and not database:
        return []
    try:
        url = root_catalog_url(root, database)
        return [_none(root)] if url is None else [_schema(url, root)]
    except CheckpointException as error:
        return [bad("catalog", str(error), "start the server or correct --database; saves go on without it")]


def _none(root: str) -> Diagnosis:
    return good("catalog", f"none; a root needs none (mckpt reindex {quote(root)} makes one)")


def _schema(url: str, root: str) -> Diagnosis:
    from model_checkpoint.database.local.local_file import is_as_we_know_it
    from model_checkpoint.database.schema.revisions import HEAD, SchemaStatus, schema_status

    if is_as_we_know_it(url):
        return good("catalog", f"{url}: reachable, schema {HEAD}")
    from model_checkpoint.database.migration_manager import MigrationManager
    from model_checkpoint.database.opening.database_url import read_url, shown

    where = shown(read_url(url))
    with MigrationManager(url) as manager:
        revision = manager.get_current_version()
    status = schema_status(revision)
    told = f"{where}: reachable, schema {revision or 'none'}"
    if status is SchemaStatus.CURRENT:
        return good("catalog", told)
    if status is SchemaStatus.NEWER:
        return note("catalog", f"{told}, of a newer version; it is only read here", "pip install -U model-checkpoint")
    remedy = f"mckpt reindex {quote(root)} --database URL" if root else "open it once with auto_migrate=True"
    return note("catalog", f"{told}, this version writes {HEAD}", f"{remedy} brings it up to date, after a backup")
