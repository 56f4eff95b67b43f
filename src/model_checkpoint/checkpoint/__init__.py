"""Checkpoint: many checkpoints of many runs, managed.

storage          who turns a state into files, and back.
"""
