"""model_checkpoint: everything a training run must not lose and must not hold in memory.

The public names are those of the stub beside this file; each is imported on first use, so that importing the package
stays cheap.
The rooms, from where people come in down to what all share; each imports only what lies below it:

cli            the `mckpt` command.
testing        faults and inheritable suites, for authors of stores.
api            the server and its dashboard.
integrations   the training loop, and the trainers of others.
convert        checkpoints of other formats, in and out.
checkpoint     checkpoints of runs, managed: recorded, chosen, kept by rule, resumed from.
distributed    many ranks save and load one checkpoint together.
tracking       experiments and their metrics.
integrity      whether every byte is still as it was saved.
precision      training in 16 bits over FP32 masters.
engine         save, load, commit, recover: the only place that wires the stages below.
recompute      activations within a byte budget.
tree           any state as named leaves, and back.
plan           who writes what where, and what a load must read.
format         what a data file looks like.
storage        bytes under a name, in folders and buckets.
database       the catalog.
hooks          code of the user's, called when something happens.
performance    memory, caches, batches, measures.
state          leaves in memory.
manifest       the record of one checkpoint, written last.
options        what a caller can choose.
backend        how somebody else than the engine writes a state.
coordination   what lets ranks talk.
events         how lower rooms report.
flushing       what a path names is on the medium.
forks          what a forked child must find fresh.
name_lists     which names a message tells, and how many.
notebook_html  how values look in a notebook.
errors         what can go wrong, where, and the next step.
"""

import logging

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.1.0"
__all__ += ["__version__"]

logging.getLogger("model_checkpoint").addHandler(logging.NullHandler())
