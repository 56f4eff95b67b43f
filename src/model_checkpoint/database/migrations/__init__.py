"""Migrations: the revisions of the schema, one file each, as Alembic runs them. None is changed once it was released.

Each step may be done twice, since MySQL cannot undo half of one. No table is rebuilt: tables and columns come and go.

r0001_runs_and_checkpoints  runs, checkpoints, metrics.
r0002_summaries             summaries of series, the index of the best, heartbeats; filled from what is there.
r0003_history               audit log, lineage, integrity records, deletion intents.
"""
