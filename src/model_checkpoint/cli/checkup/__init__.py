"""Checkup: what `mckpt doctor` looks at and `mckpt bench` measures; knows nothing of how it is printed.

examine         all checks of one call, in order.
root_checks     a root: file system, room, permissions, leftovers, damage that shows without reading.
catalog_checks  a catalog: reachable, and of which schema.
machine_checks  this machine and installation: compiled parts, frameworks, memory, clock.
trial           how fast saving, loading and verifying are in one place.
torch_trial     whether torch can be loaded, found out by another process.
diagnosis       what a check found, as a value.
"""
