"""Migration hooks: whoever registered for it hears of a migration of the catalog, and may prevent it."""

from __future__ import annotations

from collections.abc import Callable

from model_checkpoint.database.event_records import SchemaChange
from model_checkpoint.hooks import HookEvent, HookManager


def migration_notifier(hooks: HookManager) -> Callable[[SchemaChange], None]:
    """What a connection is given as ``notify``, so that ``hooks`` hear of migrations.

    Example:
        >>> hooks = HookManager()
        >>> _ = hooks.register_hook("hear", lambda context: print(context.event.value), events=["before_migration"])
        >>> migration_notifier(hooks)(SchemaChange(moment="before", database="", from_revision="1", to_revision="2"))
        before_migration
    """

    def tell(change: SchemaChange) -> None:
        event = HookEvent.BEFORE_MIGRATION if change.moment == "before" else HookEvent.AFTER_MIGRATION
        told = {"database": change.database, "from_revision": change.from_revision, "to_revision": change.to_revision}
        result = hooks.fire_hook(event, None, **told, backup=change.backup)
        if event.may_be_vetoed:
            result.raise_if_vetoed()

    return tell
