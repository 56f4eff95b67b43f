"""The front door of this room: every public name and the module that defines it. The one list."""

from .flattening.flatten import flatten as flatten
from .generators.rng import RngState as RngState
from .generators.rng import rng_state as rng_state
from .nodes.rename import rename as rename
from .nodes.specs import entries_in as entries_in
from .nodes.specs import part_at as part_at
from .nodes.specs import select as select
from .nodes.specs import specs as specs
from .nodes.summary import PartSummary as PartSummary
from .nodes.summary import TreeSummary as TreeSummary
from .nodes.summary import summary as summary
from .restoring.live_specs import aligned as aligned
from .restoring.live_specs import both_sides as both_sides
from .restoring.live_specs import live_specs as live_specs
from .restoring.live_specs import stands_alone as stands_alone
from .restoring.live_specs import unasked as unasked
from .restoring.live_specs import unmet as unmet
from .restoring.preparing import Preparation as Preparation
from .restoring.restore import Restore as Restore
from .restoring.restore import prepare as prepare
from .values.codecs import register_codec as register_codec
from .values.view_sizes import nbytes_of as nbytes_of
