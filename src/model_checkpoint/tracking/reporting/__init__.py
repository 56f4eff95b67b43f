"""Reporting: what people read about runs. Knows the catalog's records, and nothing of how they got there.

run_search      a run as a search sees it.
vitals          whether a run lives, hangs or is dead.
run_comparison  runs side by side.
run_report      one run as a page of text.
text_tables     rows as Markdown or as columns.
"""
