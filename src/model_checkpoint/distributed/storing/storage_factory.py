"""Storage factory: storages made by options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from model_checkpoint.distributed.storing.folder_storage import FolderStorage
from model_checkpoint.distributed.storing.storage_roots import Storage
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.storage.locate import open_store

_BASE = "basePath"
_SCHEMES = {"memory": "memory", "s3": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az"}


def _default_settings() -> dict[str, str]:
    return {_BASE: "./checkpoints"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageOptions:
    """Where checkpoints are kept.

    Attributes:
        provider: ``"local"``, ``"memory"``, ``"s3"``, ``"gs"`` or ``"az"`` (``"gcs"`` and ``"azure"`` mean the same).
        connection_settings: ``basePath``: the folder, or bucket and prefix. Credentials come from the environment.

    Example:
        >>> StorageOptions().connection_settings
        {'basePath': './checkpoints'}
    """

    provider: str = "local"
    connection_settings: Mapping[str, str] = field(default_factory=_default_settings)


class StorageFactory:
    """Makes storages.

    Example:
        >>> options = StorageOptions(provider="memory", connection_settings={"basePath": "doc-factory"})
        >>> StorageFactory.create(options).url
        'memory://doc-factory'
    """

    @staticmethod
    def create(options: StorageOptions | None = None) -> Storage:
        """The storage that options describe; nothing is read or made yet."""
        options = StorageOptions() if options is None else options
        settings = dict(options.connection_settings)
        base = settings.pop(_BASE, "")
        if options.provider not in ("local", *_SCHEMES):
            raise OptionInvalid(
                f"provider={options.provider!r}: expected local, {', '.join(_SCHEMES)}. For anything else give "
                "DistributedCheckpoint a storage of your own. Nothing was done."
            )
        if not isinstance(base, str) or not base.strip():
            raise OptionInvalid(
                f"connection_settings of a {options.provider} storage lack {_BASE!r}, where the checkpoints shall lie. "
                "Nothing was done."
            )
        if settings:
            raise OptionInvalid(
                f"connection_settings has {', '.join(map(repr, settings))}, which nothing reads; expected {_BASE!r} "
                "alone. Credentials come from the environment. Nothing was done."
            )
        if options.provider == "local":
            return FolderStorage(base)
        return open_store(f"{_SCHEMES[options.provider]}://{base}")
