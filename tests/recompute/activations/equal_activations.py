"""When two activations are the same."""

import numpy as np
import torch


def same(one, other):
    """Whether two activations have equal structure, types, dtypes, shapes and bytes."""
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, torch.Tensor):
        return (
            (one.dtype, one.shape, one.device, one.requires_grad)
            == (other.dtype, other.shape, other.device, other.requires_grad)
        ) and torch.equal(
            one.detach().contiguous().view(-1).view(torch.uint8), other.detach().view(-1).view(torch.uint8)
        )
    if isinstance(one, np.ndarray | np.generic):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and one.tobytes() == other.tobytes()
    return one == other
