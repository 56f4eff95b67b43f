"""Ranks: how the ranks of one program agree while they save or load together.

single_process    what a call of one process can see of other ranks.
error_records     what went wrong on one rank, so that all can raise it.
call_numbers      the calls that all ranks make together, counted.
words             what ranks say as bytes, never more than can be read.
conversation      what ranks say to each other, heard in time or named as missing.
rank_agreement    every rank brings a word, rank 0 makes one of them for all.
layout_inference  how a strided layout is meant, by what all ranks hold.
structure         what the state of a rank looks like, kept with what was planned for it.
pooling           what one rank has to say of its state, and what all make of it.
"""
