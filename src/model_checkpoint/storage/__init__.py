"""Storage: keep bytes under a name and give them back (step 4 of a save). Knows nothing of tensors, formats or SQL.

The names of the stub beside this file are imported on first use.

locate           from a path or URL to the store that keeps it.
contract         what every store promises, what things may be called, and how failures are told.
local            checkpoints as folders on a file system.
objects          checkpoints in a bucket of S3, Google Cloud Storage or Azure.
memory           checkpoints in this process, for tests, notebooks and dry runs.
memory_attempts  files in memory on their way to a checkpoint, and what a root in memory holds.
base_backend     what backends that write files of their own are written on.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
