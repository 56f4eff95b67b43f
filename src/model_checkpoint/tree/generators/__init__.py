"""Generators: random generators as state.

rng        the random generators of a program as an ordinary part of its state.
torch_rng  the generators of the CPU and of every CUDA device in use.
"""
