"""Stepping: one optimizer step, from verdict to weights.

session     one optimizer's run - the window of losses, the verdict on each step, counters, modes and timeline.
apply_step  apply judged gradients to the masters and cast the result to the training weights.
kernels     torch's fused optimizer steps, run piece by piece so that each piece is cast while still in cache.
schedules   learning-rate schedulers that rest while steps are skipped, and a base that steps only through us.
results     what one optimizer step did, and the running totals.
monitor     how long optimizer steps take, over a rolling window.
"""
