"""Recompute: which activations are kept, which are dropped and computed again, within a byte budget.

Two systems: `auto_checkpoint` for torch models (`auto`), and the activation classes (`manager` and what it stands on).
The names of the stub beside this file are imported on first use; importing this package imports no framework.

auto         `auto_checkpoint`, training within a byte budget: measure, plan, run.
manager      keeps activations by layer and computes dropped ones again.
activations  what is kept, where, by which strategy, and what that costs.
functions    registered functions run again, in order and as they ran first.
common       what both systems share: spill files, the context of a run, the mark of a second one.
errors       what can go wrong with activations kept, dropped or computed again.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
