"""Loop: a training loop that saves where it may, and goes on where it was.

run              the loop itself: ``for batch in Run(...)``.
place            where in its data a run is.
several_loaders  one batch of each at a time, each loader with a place of its own.
run_metrics      the numbers a run logged, the step each is of, and whether a keeper waits for them.
saved_run        all a run must bring back beside the caller's objects, and the order in which it comes back.
boundary         at which boundaries between two bodies a run may save, saves, or leaves.
rank_boundary    all ranks of a run leave at the same boundary, whichever of them was told to end.
run_catalog      a run in the catalog: one experiment, its metrics, its checkpoints, where it branched off.
fillable         what a resume can fill in place; anything else is refused on the first start.
newest_healthy   the newest checkpoint of which every byte is as it was saved.
opening_line     in one line what a run goes on from, and what it fell back over.
environment      what must be the same for numbers to be the same, and what is not.
training_bar     how far a run is, on a terminal.
"""
