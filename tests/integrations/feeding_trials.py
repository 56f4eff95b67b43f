"""What a run gives of its data, unbroken and left and gone on with."""

import torch

import model_checkpoint as mc


def seen_in(root, data, stop=None):
    """The batches a run gives, up to a step, and whether it is exact."""
    seen, run = [], mc.Run(root, data=data, epochs=2, every=3, a={})
    for batch in run:
        if run.step == stop:
            break
        seen.append(batch.tolist())
    mc.finish_saves(root)
    return seen, run.exact


def whole_and_rest(make, folder):
    """What is seen in an unbroken run, and in one that goes on after it was left in its fifth step."""
    torch.manual_seed(0)
    whole = seen_in(folder / "whole", make())
    torch.manual_seed(0)
    seen_in(folder / "cut", make(), stop=5)
    return whole, seen_in(folder / "cut", make())
