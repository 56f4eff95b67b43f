"""Performance: what a process may still take, and how it moves many bytes. Knows no tensors and no SQL.

available_memory  how much this process may still take, by the machine, its control groups and its own limit.
copying           many bytes from one place to another, past the processor's caches where that was compiled.
"""
