"""Distributed: many ranks save and load one checkpoint together.

The names of the stub beside this file are imported on first use.

coordinators  what lets the ranks talk, by the transport the program already has.
dcp_keys      a state in the words of torch.distributed.checkpoint.
words         names of lower rooms that programs of many ranks use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
