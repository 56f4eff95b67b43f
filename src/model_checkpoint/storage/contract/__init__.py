"""Contract: what every store promises, what things may be called, and how failures are told.

store     the contract of a place that keeps checkpoints.
stamping  the stamps of many checkpoints, for the price of one listing where a store can do that.
sidecars  small values a root keeps beside its checkpoints, such as pins, tags and notes.
shared    what a store must be able to do for many ranks to write one checkpoint, or to delete one.
ending    how an attempt is stopped, once.
names     what a checkpoint, a file, an attempt and a deleted checkpoint may be called.
failures  an OSError of the system becomes an error that says where, what, and what to do next.
host      which start of which machine this is, and what its clocks say.
"""
