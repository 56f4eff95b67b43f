"""Shards: arrays of which this process has a part and other ranks have the rest.

sharded_ref   such an array met in a state.
marker        a part of an array that says itself where it lies.
torch_shards  DTensor and ShardedTensor.
jax_shards    JAX arrays that lie on several processes.
"""
