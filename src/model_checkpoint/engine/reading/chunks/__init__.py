"""Chunks: bytes as they lie on the medium, believed only as far as their digests go.

chunk_reader      the data files of one checkpoint, opened, measured and read chunk by chunk, never believed unverified.
chunk_partners    which ranks of a load read chunks for each other, and what all of them want.
common_chunks     which chunks several ranks want, as all of them call them.
exchanged_chunks  what all ranks want, read from the medium by one of them and handed to the others.
neighbour_chunks  what all ranks of a machine want, read from the medium by one of them and shown to the others.
shared_slots      memory in which a rank shows chunks to the other ranks of its machine, a few at a time.
stored_chunks     a data file as its bytes lie on the medium, chunk by chunk, and whether those bytes are right.
healthy_copies    what one verification has read and found whole, so that what checkpoints share is read once.
parity_files      the parity files of one checkpoint, believed only as far as their digests go.
open_readers      the files of one checkpoint that are open until all of them are let go of.
"""
