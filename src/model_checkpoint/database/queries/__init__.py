"""Queries: what is read from a catalog, each query once for a file and for a whole connection.

history_queries     what came out of what, what was done and by whom.
run_queries         runs, and what their checkpoints come to.
point_queries       what was measured: summed up, or as columns.
checkpoint_queries  checkpoints: found, listed newest first, the best by a metric.
row_pages           rows in order, page by page, at a cost that does not grow with what lies before.
"""
