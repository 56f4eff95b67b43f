"""Running: a schedule in force: what is kept, dropped, offloaded and run again in each step.

runtime            a model with a schedule in force: its layers call the executor instead of themselves.
executor           run a model stage by stage, opening and closing the regions of its schedule around them.
compiled_schedule  a schedule in the form the executor walks, one step per stage.
region_frame       one region of one forward pass, which saves nothing and runs again when backward comes.
call_state         remember the surroundings of one layer call, and put them back for its second run.
saved              one tensor that backward will ask for, either held or to be rebuilt from others.
drop               do not keep results of cheap operations whose input is saved anyway; make them again in backward.
offload            write what stages save to disk or host memory, and have it back before backward asks.
offload_groups     the saved tensors of one stage call, out of memory until backward wants them.
prefetch           run the region that backward needs next on a worker thread.
"""
