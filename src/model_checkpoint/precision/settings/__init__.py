"""Settings: what can be chosen, and what this machine can do.

number_formats     the number formats training can run in, and lossless or lossy ways between them.
hardware           find out by running it which precisions this machine can train in.
precision_options  everything that can be chosen about mixed precision, checked when it is made.
precision_manager  which layers train in reduced precision, and the two copies of their weights.
"""
