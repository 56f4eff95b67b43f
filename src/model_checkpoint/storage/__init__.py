"""Storage: keep bytes under a name and give them back (step 4 of a save). Knows nothing of tensors, formats or SQL."""

from __future__ import annotations

from model_checkpoint.storage.contract.store import Reader as Reader
from model_checkpoint.storage.contract.store import Stage as Stage
from model_checkpoint.storage.contract.store import Store as Store
from model_checkpoint.storage.contract.store import Swept as Swept
from model_checkpoint.storage.contract.store import Trashed as Trashed
from model_checkpoint.storage.contract.store import Writer as Writer
from model_checkpoint.storage.local.store import LocalStore as LocalStore
from model_checkpoint.storage.locate import UnknownScheme as UnknownScheme
from model_checkpoint.storage.locate import open_store as open_store
from model_checkpoint.storage.memory import MemoryStore as MemoryStore
from model_checkpoint.storage.objects.store import ObjectStore as ObjectStore
