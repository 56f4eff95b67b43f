"""Grid: how far the experiments of a grid are, and how to go on after one died.

grid_progress        one experiment: a line each hundred steps, each checkpoint, each heartbeat, with the time left.
experiment_recovery  what to resume from, on disk before it is needed.
recovery_advice      what to do about an error.
grid_coordinator     all experiments of a grid, whichever process runs them.
"""
