"""Rendering: tables for people, JSON for programs. Control characters in names never reach the terminal.

checkpoint_tables  what ls, show and the marking verbs print.
tensor_tables      tensors with their histograms, single leaves, differences.
trust_tables       what verify, repair, doctor and bench print.
plan_tables        what retention keeps and drops, what a disk will hold, what is in the trash.
catalog_tables     runs, metrics, lineage and the rows of a query.
charts             numbers as small pictures of characters.
json_text          any of our results as one JSON value.
progress_line      a line that says what long work is at.
terminal           what is safe to print, and where it goes.
"""
