"""Writes: what is written to a catalog, each rule once for a file and for a whole connection.

run_writes         runs stored and changed; when they were last heard of.
point_writes       what was measured.
point_batches      points of many series put down at once, with their summaries.
checkpoint_writes  stored, changed, deleted, brought back and forgotten; flags that say which are best.
history_writes     what came out of what, what verifications found, and what was done by whom.
"""
