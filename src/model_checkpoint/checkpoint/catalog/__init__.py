"""Catalog: the rows of the database that index the checkpoints of a root; the manifests are the truth.

catalog_place     where the catalog of a root lies if nobody says.
catalog_rows      a manifest becomes a row, whether it was written a moment or a year ago.
best_choice       which checkpoint of a run is the best, by loss, validation loss and any metric or expression.
marked_rows       what a pin, a tag or a note makes of a row.
removed_rows      what the catalog learns of a checkpoint that went, all of it at once.
checkpoint_index  rows written, read and marked; kept in a spool while the database cannot be reached.
reindexing        the catalog of a root built anew from its manifests.
"""
