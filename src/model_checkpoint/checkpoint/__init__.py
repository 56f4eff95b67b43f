"""Checkpoint: the checkpoints of runs, managed: saved, recorded, chosen, kept by rule and resumed from.

The names of the stub beside this file are imported on first use.

checkpoint_manager   save, load and resume; each method a short list of steps.
managed_checkpoints  find, delete, pin, prune and verify what is saved.
saving               one call becomes a durable, recorded checkpoint.
loading              one checkpoint is chosen, checked and given back, or flows into live objects.
keeping              what becomes of checkpoints once they are saved.
opening              from the choices of a caller to everything a manager works with.
services             what the steps share.
manager_options      what can be chosen once for all checkpoints of a manager.
catalog              the rows that index the checkpoints of a root.
storage              who turns a state into files, and back.
retention            which checkpoints stay and which go, told before it is done; works on a plain root, knows no SQL.
trash_sweeper        gives back the room of what was dropped, once its grace is over.
tolerated_failures   what may fail without failing a save: logged, counted, gone on from.
errors               each derives from the one tree and from the builtin its callers expect.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
