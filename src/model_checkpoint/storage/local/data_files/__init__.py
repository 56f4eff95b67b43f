"""Data files: the bytes of a checkpoint on their way to a file system, and back.

files         one data file being written or read.
leased_map    bytes of a cached file looked at where they lie, while nobody can change them.
direct_reads  bytes of a cold file, straight from the medium, whatever their alignment.
"""
