"""Root: the checkpoints of one root, found, chosen, told about, deleted and cleared up.

refs            how people name a checkpoint in one word.
listing         find the checkpoints of a root and pick the one a caller means.
protection      which checkpoints have the parity files they were saved to get.
rank_manifests  what many ranks wrote, joined to the manifest of their checkpoint.
shared_files    checkpoints that hold the same copy of a file. N of them are one copy, and are damaged together.
marks           pins, tags and notes of the checkpoints of a root, kept in the root itself.
marking         pin, tag and note a checkpoint.
backend_files   what a manifest says of the files that a storage backend wrote.
describe        what is in a checkpoint, and what a resume from it would lack; no array byte is read.
run_position    where in its data a run was when it saved, and whether a resume goes on bit for bit.
intents         what is about to be deleted together, written down before the first of it goes.
delete          put a checkpoint into the trash, and take it out again until its grace is over.
recover         clear what dead saves left behind. Runs at the first save of a process on a root, and in `mckpt gc`.
"""
