"""Asking: what a catalog answers, each question written once for a file and for a whole connection.

asked_history      what came out of what, what was done and by whom.
asked_runs         runs, and what their checkpoints come to.
asked_points       what was measured: summed up, or as columns.
asked_checkpoints  checkpoints: found, listed newest first, the best by a metric.
row_pages          rows in order, page by page, at a cost that does not grow with what lies before.
"""
