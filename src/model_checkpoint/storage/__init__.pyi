"""The front door of this room: every public name and the module that defines it. The one list."""

from .contract.store import Attempt as Attempt
from .contract.store import Mending as Mending
from .contract.store import Reader as Reader
from .contract.store import Store as Store
from .contract.store import Swept as Swept
from .contract.store import Trashed as Trashed
from .contract.store import Writer as Writer
from .local.store import LocalStore as LocalStore
from .locate import UnknownScheme as UnknownScheme
from .locate import open_store as open_store
from .memory import InMemoryStore as InMemoryStore
from .objects.store import ObjectStore as ObjectStore
