"""Ranks: how the ranks of one program agree while they save or load together.

told_errors   what went wrong on one rank, so that all can raise it.
conversation  what ranks say to each other, heard in time or named as missing.
readings      how a strided layout is meant, by what all ranks hold.
pooling       what one rank has to say of its state, and what all make of it.
"""
