"""Convert: checkpoints of other formats become ours, and ours theirs; folders of trainers are adopted whole.

The names of the stub beside this file are imported on first use.

converting  one checkpoint from any format into any other.
adopting    all that a trainer has left in a folder, taken into a root.
findings    the checkpoints of trainers below a folder.
formats     which format lies at a path.
sources     what other formats hold, as states that lie in mapped files.
targets     checkpoints of ours, written in other formats.
errors      each derives from the one tree and from the builtin its callers expect.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
