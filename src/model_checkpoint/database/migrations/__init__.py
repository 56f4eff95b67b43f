"""Migrations: the revisions of the schema, one file each, as Alembic runs them. None is changed once it was released.

Each step may be done twice, since MySQL cannot undo half of one. Tables and columns come and go; one is
rebuilt only where all of it is one transaction.

r0001_runs_and_checkpoints  runs, checkpoints, metrics.
r0002_summaries             summaries of series, the index of the best, heartbeats; filled from what is there.
r0003_history               audit log, lineage, integrity records, deletion intents.
r0004_fewer_pages           indexes of flags without what has none, and on SQLite two tables without row numbers.
"""
