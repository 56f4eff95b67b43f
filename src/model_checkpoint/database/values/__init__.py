"""Values: how what we store is written down so that it comes back exactly, on every database.

exact_numbers  a float as a grade and a finite number, in the order of the numbers.
json_values    plain data as JSON that every database takes, NaN and large integers included.
point_columns  what logging calls say, as columns of each metric.
column_types   columns that compare, keep and refuse the same everywhere.
"""
