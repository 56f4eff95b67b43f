"""Integrations: the training loop, and the trainers of others, on what lies below.

loop     the loop that resumes by itself, bit for bit.
dcp      a plug for torch.distributed.checkpoint.
feeding  batches of any kind of data from any place of an epoch, with the randomness they had.
"""
