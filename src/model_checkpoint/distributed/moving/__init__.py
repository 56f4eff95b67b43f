"""Moving: states of all ranks to one checkpoint, and back.

call_services           what every call of one DistributedCheckpoint works with.
live_parts              what the engine is to save of a user's objects, and to fill.
checkpoint_coordinator  all ranks save one checkpoint.
checkpoint_loader       all ranks load one checkpoint.
prefixes                what a checkpoint is called, and whether there is one.
save_call               a save from the first word to the last.
load_call               a load from the first word to the last.
delete_call             a deletion from the first word to the last.
"""
