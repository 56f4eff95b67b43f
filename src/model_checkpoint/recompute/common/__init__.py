"""Common: what both systems of this room share; no framework is imported.

spill_files  bytes put away in private scratch files, and checked against their digest when they come back.
context      random generators, autocast, grad mode, train flags, taken now and put back later.
closing      what is open until closed, and refuses work afterwards.
recomputing  whether the code that asks is a second run, for hooks and functions with side effects.
"""
