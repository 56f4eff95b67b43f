"""Library: every catalog and root that is served, found, opened and asked by id; nobody above knows where one lies.

served_places  what lies below the paths and URLs a caller names.
root_mirror    plain roots as a catalog in a file of our own, kept up to date with what is on disk.
shelves        catalogs side by side: which of them has a run, a checkpoint; which may be changed.
run_titles     what people call a run, wherever only its id stands.
result_cache   small documents on disk, by digest: what took long to compute is computed once.
"""
