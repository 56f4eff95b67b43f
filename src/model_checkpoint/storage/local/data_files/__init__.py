"""Data files: the bytes of a checkpoint on their way to a file system, and back.

files         one data file being written or read.
direct_reads  bytes of a cold file, straight from the medium, whatever their alignment.
"""
