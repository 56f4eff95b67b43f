"""Records: what passes between ranks, storage and their users.

state_dict           named tensors, and the objects that give and take them.
checkpoint_metadata  what is known of a checkpoint, its files and tensors.
shard_data           what one rank has, as bytes with a table of what lies where.
load_result          what a load came to.
"""
