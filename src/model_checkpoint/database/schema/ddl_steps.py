"""DDL steps: what a migration is made of; each may be done twice, for databases that cannot undo half a migration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from alembic import op
from sqlalchemy import Column, ForeignKeyConstraint, UniqueConstraint, inspect, text

Item = Column[Any] | UniqueConstraint | ForeignKeyConstraint
Indexes = dict[str, Sequence[str]]


def make_table(name: str, *items: Item, indexes: Indexes | None = None, **options: Any) -> None:
    """Create a table and its indexes where they are missing; an index column may end in ``DESC``."""
    look, there = inspect(op.get_bind()), set[str | None]()
    if look.has_table(name):
        there = {index["name"] for index in look.get_indexes(name)}
    else:
        op.create_table(name, *items, **options)
    for index, columns in (indexes or {}).items():
        if index not in there:
            op.create_index(index, name, [text(one) if " " in one else one for one in columns])


def drop_tables(names: Iterable[str]) -> None:
    """Drop tables where they are still there."""
    for name in names:
        if inspect(op.get_bind()).has_table(name):
            op.drop_table(name)
