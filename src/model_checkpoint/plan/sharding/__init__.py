"""Sharding: which rank holds, writes and reads which part of an array (many ranks). Pure, and the same on every rank.

regions    boxes of elements: what two have in common, what a run of elements is made of.
holders    which boxes of an array a rank holds, and who holds the same.
loads      how many bytes each rank would hold and write.
share_out  who writes which part of what several hold, so that all write as much.
writers    which ranks have written something of a box.
tiling     whether the pieces of an array make up the whole.
"""
