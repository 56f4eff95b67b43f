"""Figures: what there is to say about the numbers of a checkpoint, for people who look at it.

tensor_figures  the figures of one tensor of a checkpoint, verified, a bounded piece of memory at a time.
movement        how far one tensor is from another.
number_figures  mean, spread, norm, what is not finite and a histogram, a block at a time; pure arithmetic.
"""
