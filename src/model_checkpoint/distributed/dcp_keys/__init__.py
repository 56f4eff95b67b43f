"""DCP keys: a state in the words of torch.distributed.checkpoint: dotted keys, each with its path and what it holds.

saved_items  what a checkpoint holds, by key.
key_paths    keys as DCP makes them of a nested state, and the nested state they stand for.
"""
