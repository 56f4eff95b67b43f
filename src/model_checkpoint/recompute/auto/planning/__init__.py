"""Planning: from measured stages and a budget to a schedule. Numbers in, values out; no tensors.

schedule   which stages are kept and which are run again, as a tree of plain values.
merge      join neighbouring stages of a long chain so that planning stays quick.
planner    the fastest keep/recompute schedule of a chain within a number of bytes.
forecast   run a schedule on paper, event by event, with the workers beside the main thread.
points     the schedules worth running, each with what it takes, from the least memory to the least time.
calibrate  turn the planner's model of memory into a promise, by running candidates once under the tracker.
plan       what was decided for a model, why, and how well it was predicted; a value that JSON can hold.
plan_log   where a plan is told, beside the model that trains by it.
pareto     the trade of memory against time, as text, SVG or PNG.
outline    what a model looks like without running it, to tell whether a plan was made for it.
"""
