"""Precision: train in 16 bits over FP32 masters, clip and skip correctly, and resume bit for bit.

The names of the stub beside this file are imported on first use.

optimizer      any dense torch optimizer, trained in 16 bits over FP32 masters.
settings       what can be chosen, and what this machine can do.
parameters     half weights beside their FP32 masters.
gradients      judged, unscaled and clipped.
scaling        the loss scale, its history, and the way to FP32 and back.
stepping       one optimizer step, from verdict to weights.
checkpoints    all of a mixed-precision run as one value: captured, checked, written, restored.
checkpointing  create, save, load, restore and inspect checkpoints of mixed-precision runs.
errors         each derives from the one tree and from the builtin its callers expect.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
