"""Values: how what we store is written down so that it comes back exactly, on every database.

exact_numbers      a float as a grade and a finite number, in the order of the numbers.
json_values        plain data as JSON that every database takes, NaN and large integers included.
column_rules       what each column keeps, and what it refuses.
driver_rows        statements and rows as Python's own driver of SQLite takes and gives them.
point_columns      what logging calls say, as columns of each metric.
series_columns     rows of points as columns, thinned to what a chart can show.
checkpoint_scores  the numbers a checkpoint can be chosen by, the index over them, the flags of the chosen.
row_records        what a row is handed out as, whoever read it, and what it is made of.
summed_rows        what a row that sums others up is handed out as.
file_urls          a SQLite file as the URL that names it.
cursors            what a list is ordered by, and where a page of it ended, as one word.
audit_entries      what was done, as it is told by who does it.
column_types       columns that compare, keep and refuse the same everywhere.
"""
