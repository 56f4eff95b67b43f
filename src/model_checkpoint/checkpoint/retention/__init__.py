"""Retention: which checkpoints stay and which go, told before it is done. Works on a plain root; knows no SQL.

amounts           ages and sizes as people write them.
candidates        the checkpoints of a root, as far as retention looks at them; read from heads, marks and one listing.
candidate_order   the checkpoints in order, and what a keeper says of each of them.
metric_keepers    the best by what was measured, and what no other beats in two ways.
interval_keepers  one of every stretch of steps or time, of all or of the newest so many.
keepers           what can be kept: the last, the best, every so many steps, a ladder, young, tagged and pinned ones.
keeper_words      a keeper in one word, for command lines and configuration.
retention_plan    for every checkpoint why it is kept or dropped, and what that frees. Pure.
carry_out         drop what a plan says, so that a kill at any point can be finished or undone.
prune             the front door: look, plan, tell, do.
disk_forecast     when the disk will be full, and what a set of keepers will hold.
"""
