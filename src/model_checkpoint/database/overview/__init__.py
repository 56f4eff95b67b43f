"""Overview: many rows at a glance, each question one statement that reads no more than it answers.

run_pulses         of every run what moves when anything about it does.
sparklines         a few numbers of many series, probed by index.
series_windows     one series between two ends, as the least, greatest and last value of each column of a chart.
checkpoint_search  checkpoints of all runs by health and reason, in any order, page by page; how many of each health.
space_rows         bytes by run and by day, what lies in the trash, how long ago all was verified.
"""
