"""Run policies: by which keepers a run is pruned in a root, known to the catalog and not only to who does it.

A policy is an entry of the audit trail, made when it is news; the latest of a run and root is the one in force. So
whoever has the catalog can say of each checkpoint why it stays, and by which rules an earlier one went.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from model_checkpoint.database.local.catalog_reader import CatalogReader
from model_checkpoint.database.values.cursors import MOST

if TYPE_CHECKING:  # a command that only reads does without what these bring
    from model_checkpoint.checkpoint.retention.candidate_order import Keeper
    from model_checkpoint.checkpoint.services import Services

ACTION = "policy"  # in the audit trail


def declare_policy(services: Services, run: str, keepers: Sequence[Keeper]) -> None:
    """Write down by which keepers a run is pruned here, unless that is known; a keeper without a word by its text."""
    from model_checkpoint.checkpoint.retention.keeper_words import word_of

    words = tuple(word_of(keeper) or str(keeper) for keeper in keepers)
    catalog, root = services.catalog, services.store.url
    if catalog.policies.get(run) is None:
        catalog.policies[run] = policy_in_force(catalog.connection, run, root)
    if catalog.policies[run] != words:
        # not worth a flush: whoever finds it missing after a power failure writes it again
        catalog.connection.record_audit(ACTION, run, details={"root": root, "keep": list(words)}, durable=False)
        catalog.policies[run] = words


def policy_in_force(connection: CatalogReader, run: str, root: str) -> tuple[str, ...]:
    """The words of the keepers by which a run is pruned in a root; none if nobody prunes it."""
    return policies_in_force(connection, run).get((run, root), ())


def policies_in_force(connection: CatalogReader, run: str | None = None) -> dict[tuple[str, str], tuple[str, ...]]:
    """The words of the keepers of a run, or of all, by run and root."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    after = ""
    while True:
        page = connection.audit(subject=run, action=ACTION, limit=MOST, after=after)
        for entry in page.items:  # the latest first
            found.setdefault((entry.subject, entry.details["root"]), tuple(entry.details["keep"]))
        if not page.next:
            return found
        after = page.next
