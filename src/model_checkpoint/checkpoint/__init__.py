"""Checkpoint: many checkpoints of many runs, managed.

storage          who turns a state into files, and back.
retention        which checkpoints stay and which go, told before it is done; works on a plain root, knows no SQL.
"""
