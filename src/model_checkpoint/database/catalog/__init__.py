"""Catalog: what can be written down and asked; each module is one noun, each call one short transaction.

catalog_part        what they share: reading, writing, rows of any table, numbers of runs and metrics.
paging              rows in order, page by page, at a cost that does not grow with what lies before.
experiment_rows     runs, and when they were last heard of.
point_batches       points of many series put down at once, with their summaries.
metric_rows         metrics of runs: written, read, summed up.
metric_series       one series as columns, thinned where there is too much to draw.
checkpoint_columns  records put down as rows, with the index of the best.
checkpoint_rows     checkpoints: saved, found, listed.
best_rows           the best by a metric; figures of a run.
lineage_rows        what came out of what.
integrity_rows      what verifications found; what to verify next.
intent_rows         deletions that were decided and are not finished.
audit_rows          what was done, by whom, with what outcome.
"""
