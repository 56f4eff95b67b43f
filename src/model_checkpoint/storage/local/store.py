"""Local store: checkpoints as folders on a file system.

``checkpoints/<name>/`` is published, ``.staging/<attempt>/`` is being saved, ``.trash/`` was deleted. A folder under
``checkpoints/`` without a manifest is no checkpoint: it is not listed, and gives way when a save wants its name.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from model_checkpoint import forks
from model_checkpoint.errors import CheckpointException
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.failures import no_such_checkpoint, typed_errors
from model_checkpoint.storage.contract.names import TrashToken, check_attempt, check_name
from model_checkpoint.storage.contract.sidecars import SidecarRead
from model_checkpoint.storage.contract.store import FileStat, ManifestRead, Swept, Tell, Trashed, nobody
from model_checkpoint.storage.local import sidecar_files, trash
from model_checkpoint.storage.local.attempt import LocalAttempt
from model_checkpoint.storage.local.commit import can_swap
from model_checkpoint.storage.local.data_files.files import LocalReader, open_reader
from model_checkpoint.storage.local.folder_entries import folder_entries
from model_checkpoint.storage.local.mending import LocalMending
from model_checkpoint.storage.local.paths import (
    RootPaths,
    free_bytes,
    is_published,
    list_folder,
    make_root,
    read_manifest,
    regular_files,
    stamped_files,
)
from model_checkpoint.storage.local.recovery import sweep
from model_checkpoint.storage.local.shared_attempt import JoinedAttempt, SharedAttempt, settle, settle_discard
from model_checkpoint.storage.local.syscalls import SYSTEM, Syscalls

T = TypeVar("T")
_A = TypeVar("_A", bound=LocalAttempt)


class LocalStore:
    """A root on a file system; see :class:`model_checkpoint.storage.contract.store.Store`.

    ``direct=True`` writes, and reads what is cold, around the page cache where the file system can, and leaves the
    cache alone elsewhere; ``direct=False`` goes through it, so that what was saved or loaded is read again from memory.

    Example:
        >>> import tempfile
        >>> store = LocalStore(tempfile.mkdtemp())
        >>> stage = store.stage("step-1", "attempt-1")
        >>> stage.publish(b"the manifest")
        >>> store.names(), store.read_manifest("step-1")
        (['step-1'], b'the manifest')
    """

    def __init__(self, root: str | os.PathLike[str], *, calls: Syscalls = SYSTEM, direct: bool = True) -> None:
        self._root = RootPaths(os.path.abspath(os.fspath(root)), calls)
        self._direct = direct
        self._preparing = forks.lock()

    def with_calls(self, wrap: Callable[[Syscalls], Syscalls]) -> LocalStore:
        """The same root, through system calls that stand before those of this store."""
        return LocalStore(self._root.path, calls=wrap(self._root.calls), direct=self._direct)

    @property
    def url(self) -> str:
        """The absolute path of the root."""
        return self._root.path

    def exists(self) -> bool:
        """Whether the root is a folder."""
        with typed_errors(self.url, "could not look at the root"):
            try:
                return stat.S_ISDIR(self._root.calls.stat(self.url).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                return False

    def names(self) -> list[str]:
        """Names of published checkpoints, in no order."""
        with typed_errors(self._root.checkpoints, "could not list the checkpoints"):
            entries = list_folder(self._root.calls, self._root.checkpoints)
            return [entry for entry in entries if is_published(self._root, entry)]

    def entries(self) -> tuple[str, ...]:
        """Whatever lies where checkpoints do."""
        with typed_errors(self._root.checkpoints, "could not list the checkpoints"):
            return folder_entries(self._root.calls, self._root.checkpoints)

    def has(self, name: str) -> bool:
        """Whether ``name`` is published."""
        with typed_errors(self._root.checkpoint(name), "could not look at the checkpoint"):
            return is_published(self._root, name)

    def read_manifest(self, name: str) -> bytes:
        """The manifest of ``name``."""
        return self._read_manifest(name, None)

    def read_manifests(self, names: Iterable[str], *, limit: int | None = None) -> Iterator[ManifestRead]:
        """Each name with its manifest, or its first ``limit`` bytes, or its error."""
        for name in names:
            try:
                yield name, self._read_manifest(name, limit)
            except CheckpointException as error:
                yield name, error

    def _read_manifest(self, name: str, limit: int | None) -> bytes:
        folder = self._folder(name)
        with typed_errors(folder, "could not read the manifest"):
            try:
                return read_manifest(self._root.calls, folder, limit=limit)
            except FileNotFoundError as error:
                raise no_such_checkpoint(folder, self.url) from error

    def files(self, name: str) -> dict[str, int]:
        """Every regular file of ``name``, its manifest included, with its size."""
        return self._look(name, regular_files, "could not list the files")

    def stamps(self, name: str) -> dict[str, FileStat]:
        """Every regular file of ``name`` with its stamp."""
        return self._look(name, stamped_files, "could not look at the files")

    def _look(self, name: str, look: Callable[[Syscalls, str], T], failure: str) -> T:
        folder = self._folder(name)
        with typed_errors(folder, failure):
            if not is_published(self._root, name):
                raise no_such_checkpoint(folder, self.url)
            return look(self._root.calls, folder)

    def open(self, name: str, file: str) -> LocalReader:
        """Open one data file."""
        folder = self._folder(name)
        return open_reader(self._root.calls, folder, check_name(file, folder), direct=self._direct)

    def stage(self, name: str, attempt: str) -> LocalAttempt:
        """Begin an attempt."""
        return self._begin(LocalAttempt, name, attempt)

    def can_swap(self) -> bool:
        """Whether a version can take the place of another as a whole."""
        self._prepare()
        return can_swap(self._root)

    def mend(self, name: str, attempt: str) -> LocalMending:
        """Begin to put files into a published checkpoint."""
        return self._begin(LocalMending, name, attempt)

    def stage_shared(self, name: str, attempt: str) -> SharedAttempt:
        """Begin an attempt that other ranks join."""
        return self._begin(SharedAttempt, name, attempt)

    def _begin(self, kind: type[_A], name: str, attempt: str) -> _A:
        check_name(name, self.url)
        check_attempt(attempt, self.url)
        self._prepare()
        return kind(self._root, name, attempt, direct=self._direct)

    def join(self, name: str, attempt: str) -> JoinedAttempt:
        """Take part in the attempt of another rank."""
        check_name(name, self.url)
        return JoinedAttempt(self._root, name, check_attempt(attempt, self.url), direct=self._direct)

    def settle(self, name: str, attempt: str) -> bool:
        """End an attempt of many ranks for good; whether it is published."""
        check_name(name, self.url)
        return settle(self._root, name, check_attempt(attempt, self.url))

    def _prepare(self) -> None:
        """Make the root."""
        with self._preparing, typed_errors(self.url, "could not make the root"):
            make_root(self._root)

    def free_bytes(self) -> int | None:
        """Room left on the file system."""
        with typed_errors(self.url, "could not ask for the room left"):
            return free_bytes(self._root.calls, self.url)

    def discard(self, name: str) -> Trashed:
        """Move a published checkpoint to the trash, durably."""
        check_name(name, self.url)
        return trash.discard(self._root, name)

    def plan_discard(self, name: str) -> str:
        """A token for the deletion of ``name``."""
        with typed_errors(self._folder(name), "could not be moved to the trash"):
            return str(trash.last_token(self._root, name))

    def discard_planned(self, token: str) -> None:
        """Move a published checkpoint to the trash, durably, unless that was given up."""
        planned = TrashToken.parse(token, self.url)
        trash.discard(self._root, planned.name, planned)

    def settle_discard(self, token: str) -> bool:
        """End a deletion of many ranks for good; whether the checkpoint is gone."""
        return settle_discard(self._root, TrashToken.parse(token, self.url))

    def trash(self) -> list[Trashed]:
        """What can be brought back, in the order in which it was deleted."""
        return trash.contents(self._root)

    def read_trashed(self, token: str) -> bytes:
        """The manifest of what lies in the trash under ``token``."""
        return trash.read(self._root, token)

    def bring_back(self, token: str) -> str:
        """Undo a ``discard``."""
        return trash.bring_back(self._root, token)

    def sweep(self, graces: Graces, *, dry_run: bool = False, tell: Tell = nobody) -> Swept:
        """Remove leavings of dead attempts and trash past its grace."""
        return sweep(self._root, graces, dry_run=dry_run, tell=tell)

    def place(self, name: str) -> str:
        """The folder of a checkpoint, for programs that open files by path."""
        return self._folder(name)

    def read_sidecars(self, word: str = "") -> Iterator[SidecarRead]:
        """Every key that has ``word`` in it, with its bytes, or its error."""
        return sidecar_files.read_all(self._root, word)

    def write_sidecar(self, key: str, data: bytes) -> None:
        """Keep ``data`` under ``key``, durably."""
        self._prepare()
        sidecar_files.write(self._root, key, data)

    def remove_sidecar(self, key: str) -> None:
        """Forget ``key``, durably."""
        sidecar_files.remove(self._root, key)

    def _folder(self, name: str) -> str:
        return self._root.checkpoint(check_name(name, self.url))
