"""Measuring: what a model is made of and what each stage costs.

sample         run a model on sample inputs without leaving a trace: gradients, buffers, generators, flags stay.
stages         see a model as a chain of layer calls, by watching one forward pass.
survey         watch one plain training step and note what each stage does besides computing.
profile        measure what each stage costs in seconds and bytes, and write it down as a chain for the planner.
model_profile  a model measured once on a sample, to be asked for plans of any budget.
call_guard     look at each call of a planned model before it runs.
"""
