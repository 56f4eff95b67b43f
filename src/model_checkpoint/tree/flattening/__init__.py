"""Flattening: a state becomes a tree and a list of leaves (step 1 of a save).

flatten         a state is taken apart into its tree and the arrays to store (step 1 of a save).
encode          a state becomes a tree of nodes; arrays are collected on the way.
torch_wrappers  what DDP and ``torch.compile`` put around a module is no part of the names of its tensors.
torch_owners    which module owns a parameter, so that optimizer state is named after it.
torch_guards    which tensors change only in an optimizer's step, how to hold that step back, and who broke the rule.
"""
