"""Plan: who writes what where, what a load must read, and whether it fits (step 2). Pure: numbers in, values out.

The names of the stub beside this file are imported on first use.

assign              cut a list of leaves into data files.
reuse               which files of an earlier checkpoint an incremental save may repeat, and how the rest is cut.
choose              which of several checkpoints is newest.
metric_expressions  what "best" means: a metric, or arithmetic on several, and a direction.
ranking             which of several checkpoints are best, who wins a tie, and what NaN means.
run_query           one line of text that chooses runs or checkpoints, the same for people, programs and pages.
parts               which leaves a caller means by ``parts=`` and ``rename=``.
report              how a checkpoint and the live objects differ, said before any byte is read.
reads               which chunks of which files hold the bytes a load wants.
boxes               which bytes of a stored array a slice needs.
sharding            which of many ranks holds, writes and reads which part of an array.
errors              each derives from the one tree and from the builtin its callers expect.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
