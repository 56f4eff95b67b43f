"""Telling: what a catalog is told of checkpoints that are there, written once for a file and for a whole connection.

table_rows        rows of tables, found and changed; what the rules below are carried out with.
told_checkpoints  changed, deleted and brought back; flags that say which are best.
told_history      what verifications found, and what was done by whom.
"""
