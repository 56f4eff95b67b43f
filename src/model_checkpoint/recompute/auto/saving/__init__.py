"""Saving: what becomes of the tensors that backward will ask for: held, made again, moved away.

saved           one tensor that backward will ask for, either held or to be rebuilt from others.
drop            do not keep results of cheap operations whose input is saved anyway; make them again in backward.
offload_groups  the saved tensors of one stage call, out of memory until backward wants them.
offload         write what stages save to disk or host memory, and have it back before backward asks.
"""
