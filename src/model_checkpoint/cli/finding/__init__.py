"""Finding: what verbs look for, as values; knows nothing of how it is printed.

indices          part of a tensor as people write it in Python, read without running anything.
runs             the roots below a folder, one line each.
value_spread     how the values of each tensor lie: extremes, mean, histogram, NaN.
metric_history   the metrics of all checkpoints of a root, by step.
row_query        which checkpoints or runs a search means.
catalogs         the database that is meant by a root, a file or a URL; the run that is meant by a name.
catalog_reasons  why the checkpoints of a root stay, as its catalog tells.
family_tree      which runs came out of which, and at which checkpoint.
read_only_query  one query on a catalog that cannot change it.
"""
