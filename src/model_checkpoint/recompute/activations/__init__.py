"""Activations: what is kept, where, by which strategy, and what that costs.

config        which activations are kept, and how dropped ones come back.
strategies    which activations to keep.
activation    their id, their bytes and the memory they share.
stores        where the activations of a manager are kept.
packing       an activation as plain byte buffers, and back.
spill         activations kept in files, with as much of them in memory as allowed.
cache         recomputed activations within a byte budget.
policies      which activation goes first when room is needed.
tracker       who allocated how much, the peak, and a limit that raises its voice.
memory_stats  what checkpointed activations cost, as values taken at one moment.
ledger        running totals of what it stores. Its manager's lock guards every call but one.
signals       monitoring hooks of the activation classes.
"""
