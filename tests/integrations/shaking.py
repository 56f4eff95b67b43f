"""A module of a program that shakes numbers with a generator of its own."""

import numpy as np

SHAKER = np.random.default_rng(5)


def shake(x):
    return x + float(SHAKER.random())
