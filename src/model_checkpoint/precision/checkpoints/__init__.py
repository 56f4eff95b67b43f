"""Checkpoints: all of a mixed-precision run as one value: captured, checked, written, restored.

checkpoint        everything a mixed-precision run must not lose, as one value.
weights           one weight of a checkpoint with dtype, shape and little-endian bytes; or how to derive it.
live_optimizer    what a checkpoint is taken of and put back into, seen from here.
capture           take a snapshot of a running optimizer.
base_state        an optimizer's state and hyper-parameters by parameter name, as a plain tree, and back.
tree_codec        a checkpoint as a plain tree of dicts, lists, scalars and tensors, and back from any known layout.
torch_layout      the tree as a ``state_dict`` any tool for torch optimizers recognises.
checkpoint_files  a mixed-precision checkpoint as a durable folder of the engine.
self_check        every reason why a checkpoint by itself cannot be continued from.
preflight         what a change of precision would do to the weights, before it is done.
fit_check         every reason why a sound checkpoint does not fit an optimizer, and what will be different.
reinstate         inspect everything, then apply everything.
"""
