"""Storage: keep bytes under a name and give them back (step 4 of a save). Knows nothing of tensors, formats or SQL.

locate           from a path or URL to the store that keeps it.
contract         what every store promises, what things may be called, and how failures are told.
local            checkpoints as folders on a file system.
objects          checkpoints in a bucket of S3, Google Cloud Storage or Azure.
memory           checkpoints in this process, for tests, notebooks and dry runs.
memory_attempts  files in memory on their way to a checkpoint, and what a root in memory holds.
base_backend     what backends that write files of their own are written on.
"""

from __future__ import annotations

from model_checkpoint.storage.contract.store import Attempt as Attempt
from model_checkpoint.storage.contract.store import Mending as Mending
from model_checkpoint.storage.contract.store import Reader as Reader
from model_checkpoint.storage.contract.store import Store as Store
from model_checkpoint.storage.contract.store import Swept as Swept
from model_checkpoint.storage.contract.store import Trashed as Trashed
from model_checkpoint.storage.contract.store import Writer as Writer
from model_checkpoint.storage.local.store import LocalStore as LocalStore
from model_checkpoint.storage.locate import UnknownScheme as UnknownScheme
from model_checkpoint.storage.locate import open_store as open_store
from model_checkpoint.storage.memory import InMemoryStore as InMemoryStore
from model_checkpoint.storage.objects.store import ObjectStore as ObjectStore
