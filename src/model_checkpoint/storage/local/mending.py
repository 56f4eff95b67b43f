"""Local mending: sealed files take their places in a published checkpoint, one rename each.

The files of a checkpoint never change their content, so a damaged one is replaced by name and no manifest is touched;
a reader sees the old file or the new one. What is replaced keeps a second name in the trash until its grace is over. A
damaged manifest is replaced last, while nobody else can switch it.
"""

from __future__ import annotations

import os

from model_checkpoint.storage.contract.failures import in_doubt, require_sealed, typed_errors
from model_checkpoint.storage.contract.names import MANIFEST
from model_checkpoint.storage.local.attempt import LocalAttempt
from model_checkpoint.storage.local.commit import Staged, hold_still, write_manifest
from model_checkpoint.storage.local.paths import flush_folder, let_go, list_folder, read_manifest
from model_checkpoint.storage.local.replaced_files import keep_replaced


class LocalMending(LocalAttempt):
    """One mending; see :class:`model_checkpoint.storage.contract.store.Mending`. Staged as an attempt is."""

    def finish(self, *, over: bytes, manifest: bytes | None = None) -> bool:
        """Put every file in its place, then the manifest, if there is one."""
        self._require_open()
        require_sealed(self._path, self._writers)
        if manifest is not None:
            write_manifest(Staged(root=self._root, name=self._name, attempt=self._attempt, files=self._files), manifest)
        folder = self._open_target()
        if folder is None:
            self.abort()
            return False
        try:
            done = self._put(folder, over, with_manifest=manifest is not None)
        finally:
            let_go(self._root.calls, folder)
        if not done:
            self.abort()
            return False
        self._over = True
        self._tidy()
        return True

    @property
    def _target(self) -> str:
        return self._root.checkpoint(self._name)

    def _open_target(self) -> int | None:
        with typed_errors(self._target, "could not open the checkpoint to mend"):
            try:
                return self._root.calls.open(self._target, os.O_RDONLY | os.O_DIRECTORY)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def _put(self, folder: int, over: bytes, *, with_manifest: bool) -> bool:
        calls, names = self._root.calls, [*self._files, *([MANIFEST] if with_manifest else [])]
        with typed_errors(self._target, "could not put the files in place"):
            hold_still(calls, folder, alone=True)
            if not self._is_still(over):
                return False
            present = set(list_folder(calls, self._target))
            keep_replaced(self._root, self._name, [name for name in names if name in present])
            for name in names:
                calls.rename(f"{self._path}/{name}", name, into=folder)
        with in_doubt(self._target, "the files are in place"):
            flush_folder(calls, self._target)
        return True

    def _is_still(self, over: bytes) -> bool:
        try:
            return read_manifest(self._root.calls, self._target) == over
        except FileNotFoundError:
            return False
