"""Checkpoint: what becomes of checkpoints over the life of a run.

retention  which checkpoints stay and which go, told before it is done; works on a plain root, knows no SQL.
"""
