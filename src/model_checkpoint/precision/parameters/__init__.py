"""Parameters: half weights beside their FP32 masters.

parameter_table  all trained parameters of one optimizer, kept in the precision their group is in.
slots            each trained parameter beside its FP32 master, with all its names.
casting          which modules compute in FP32, and the hooks that cast at their borders.
ddp              FP32 gradients and changes of precision under DistributedDataParallel.
"""
