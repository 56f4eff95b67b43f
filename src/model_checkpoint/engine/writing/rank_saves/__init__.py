"""Rank saves: the states of many ranks become one checkpoint.

save_ranks   every rank takes its state apart, they agree, and each plans what it writes. Read this first.
rank_plan    what one of many ranks writes of states of one structure, planned once.
box_source   the bytes of a box of an array that is read in windows.
rank_parent  the checkpoint that ranks build on, of which each may repeat only its own files.
rank_part    what one rank writes, to its own manifest, and what the manifest of the checkpoint says of all.
unsharded    files of whole tensors, made from the parts of all ranks.
rank_ending  write, vote, publish or give up, and learn what became of it.
"""
