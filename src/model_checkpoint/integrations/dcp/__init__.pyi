"""The front door of this room: every public name and the module that defines it. The one list."""

from .storage_reader import StorageReader as StorageReader
from .storage_writer import StorageWriter as StorageWriter
