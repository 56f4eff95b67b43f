"""Nodes: the tree itself: names, walks, parts of it.

names          the path of a value as one dotted text, unique in its state.
located_error  a problem met deep in a tree, which learns its path on the way up.
walk           the leaves of a tree with their names; the one place that decides what a leaf is called.
specs          what a saved tree holds, and the tree reduced to a part of it.
subset         a state that is taken apart, reduced to some of its leaves.
rename         the tree as if its leaves had been saved under other names.
per_rank       the trees of many ranks as one, and that of one rank taken out of it.
rank_zero      values that are nobody's own, of which those of rank 0 are kept.
summary        what a saved tree is made of, part by part, and what a resume would lack.
"""
