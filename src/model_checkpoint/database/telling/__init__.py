"""Telling: what a catalog is told, each rule written once for a file and for a whole connection.

told_runs         runs stored and changed; when they were last heard of.
told_points       what was measured.
point_batches     points of many series put down at once, with their summaries.
told_checkpoints  stored, changed, deleted, brought back and forgotten; flags that say which are best.
told_history      what came out of what, what verifications found, and what was done by whom.
"""
