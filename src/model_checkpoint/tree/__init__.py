"""Tree: any state as named leaves, and back (the first step of a save, the last of a load).

Knows neither files nor chunks: arrays leave as :class:`~model_checkpoint.state.Source` and come back through
:class:`~model_checkpoint.state.Target`.

flattening  a state becomes a tree and a list of leaves (step 1 of a save).
nodes       the tree itself: names, walks, parts of it.
values      scalars, classes, codecs and dtypes as nodes, and back.
arrays      arrays of any framework met in a state, who shares memory with whom, and buffers to bring them back.
generators  random generators as state.
restoring   a tree becomes a state, or flows into live objects (the last step of a load).
"""

from __future__ import annotations

from model_checkpoint.tree.flattening.flatten import flatten as flatten
from model_checkpoint.tree.generators.rng import RngState as RngState
from model_checkpoint.tree.generators.rng import rng_state as rng_state
from model_checkpoint.tree.nodes.rename import rename as rename
from model_checkpoint.tree.nodes.specs import entries_in as entries_in
from model_checkpoint.tree.nodes.specs import part_at as part_at
from model_checkpoint.tree.nodes.specs import select as select
from model_checkpoint.tree.nodes.specs import specs as specs
from model_checkpoint.tree.nodes.summary import PartSummary as PartSummary
from model_checkpoint.tree.nodes.summary import TreeSummary as TreeSummary
from model_checkpoint.tree.nodes.summary import summary as summary
from model_checkpoint.tree.restoring.live_specs import aligned as aligned
from model_checkpoint.tree.restoring.live_specs import live_specs as live_specs
from model_checkpoint.tree.restoring.live_specs import stands_alone as stands_alone
from model_checkpoint.tree.restoring.live_specs import unasked as unasked
from model_checkpoint.tree.restoring.live_specs import unmet as unmet
from model_checkpoint.tree.restoring.preparing import Preparation as Preparation
from model_checkpoint.tree.restoring.restore import Restore as Restore
from model_checkpoint.tree.restoring.restore import prepare as prepare
from model_checkpoint.tree.values.codecs import register_codec as register_codec
