"""Common: what reading and writing share.

option_checks   the one place that says which values the options of the front door take.
meter           count the bytes of one operation from many threads and report them.
progress        turn a caller's ``progress=`` into the callable that receives the events of one operation.
pages           arrays over aligned memory, written, laid idle and taken up again.
slab_pool       memory that saves are done with, kept for the next save.
aligned_memory  what bytes pass through on their way to or from the medium.
workers         run one function over a shared list of items in a few threads; the first failure stops all.
info            what a person or program wants to know of one checkpoint at a glance.
"""
