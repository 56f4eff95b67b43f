"""DCP: a plug for torch.distributed.checkpoint, so that programs written for it save and load through our format.

The names of the stub beside this file are imported on first use.

storage_writer  what ``dcp.save`` and ``dcp.async_save`` write with.
storage_reader  what ``dcp.load`` reads with.
checkpoint_ids  what ``checkpoint_id=`` means: a root, the name of a checkpoint, its step.
plan_items      what the items of a plan hold: parts of tensors, whole tensors, plain values.
key_pool        the keys of all ranks, pooled, since each has been left only those it writes.
plug_ranks      the ranks of a process group, and words that no other call of the program mixes up with its own.
filling         the tensors a load asks for, filled with verified bytes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
