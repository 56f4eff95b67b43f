"""Performance: what a process may still take (caches and batches join it). Knows no tensors and no SQL.

available_memory  how much this process may still take, by the machine, its control groups and its own limit.
"""
