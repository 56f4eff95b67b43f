"""Base backend: what a storage backend is written on, under the path by which authors of backends look for it."""

from __future__ import annotations

from model_checkpoint.backend import BackendInvalid as BackendInvalid
from model_checkpoint.backend import BaseStorageBackend as BaseStorageBackend
from model_checkpoint.backend import StorageBackend as StorageBackend
