"""Storage: who turns a state into files, and back.

native             the engine: safetensors files cut into digested chunks; everything it promises holds.
torch_files        one ``.pt`` file by ``torch.save``, loaded with ``weights_only=True``.
safetensors_files  one ``.safetensors`` file that every reader of that format opens, with the whole state in it.
backend_registry   from a name, class, instance or entry point to a backend.
recompute_plan     the plan by which a model trains within its memory travels with its checkpoints.
backend_io         a state goes to a root through whichever backend, and comes back.
"""

from __future__ import annotations

from model_checkpoint.backend import BackendInvalid as BackendInvalid
from model_checkpoint.backend import BaseStorageBackend as BaseStorageBackend
from model_checkpoint.backend import StorageBackend as StorageBackend
from model_checkpoint.checkpoint.storage.backend_registry import UnknownBackend as UnknownBackend
from model_checkpoint.checkpoint.storage.backend_registry import find_backend as find_backend
from model_checkpoint.checkpoint.storage.backend_registry import register_backend as register_backend
from model_checkpoint.checkpoint.storage.native import NativeBackend as NativeBackend
from model_checkpoint.checkpoint.storage.safetensors_files import SafeTensorsBackend as SafeTensorsBackend
from model_checkpoint.checkpoint.storage.torch_files import TorchBackend as TorchBackend
