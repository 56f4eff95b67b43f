"""Repairing: parity files and mirrors, made behind a save, and the repair that uses them.

protect        what follows a save: its parity files and its mirror, and those that earlier processes did not get to.
parity_writer  the parity files of a checkpoint, made from its files as they are stored.
mirror         a checkpoint copied to a second root, every chunk verified on the way.
repair         find what is damaged, rebuild it from what is left, and tell what is lost.
lost_manifest  a manifest that cannot be used is found again: beside the parity, or in a second store.
rebuild        one file again, whole, to a new file, each chunk by its SHA-256.
chunk_sources  where the bytes of a damaged chunk can still be had.
file_stream    bytes in order, of any length, to a file that is written in aligned slabs.
"""
