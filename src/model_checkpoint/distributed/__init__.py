"""Distributed: many ranks save and load one checkpoint together.

The names of the stub beside this file are imported on first use.

checkpoint_factory      a DistributedCheckpoint with all that belongs to it, made by options.
distributed_checkpoint  model and optimizer of many ranks, saved, loaded, listed and deleted by name.
moving                  states of all ranks to one checkpoint, and back.
validating              whether a checkpoint may be loaded, asked before anything changes.
retrying                what is done when a storage fails for a moment, or for good.
storing                 where checkpoints are kept, by path, by options, or in a storage of the user's own.
records                 what passes between ranks, storage and their users.
calling                 one call that all ranks make together: its options, its limit, its turn.
coordinators            what lets the ranks talk, by the transport the program already has.
dcp_keys                a state in the words of torch.distributed.checkpoint.
reexports               names of lower rooms that programs of many ranks use.
errors                  what these calls raise besides the errors of the engine.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
