"""Tree: any state as named leaves, and back (the first step of a save, the last of a load).

The names of the stub beside this file are imported on first use.

Knows neither files nor chunks: arrays leave as :class:`~model_checkpoint.state.Source` and come back through
:class:`~model_checkpoint.state.Target`.

flattening  a state becomes a tree and a list of leaves (step 1 of a save).
nodes       the tree itself: names, walks, parts of it.
values      scalars, classes, codecs and dtypes as nodes, and back.
arrays      arrays of any framework met in a state, who shares memory with whom, and buffers to bring them back.
generators  random generators as state.
restoring   a tree becomes a state, or flows into live objects (the last step of a load).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
