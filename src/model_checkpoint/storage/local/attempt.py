"""Local attempt: one attempt to save, from its lock to its publication."""

from __future__ import annotations

from collections.abc import Sequence

from model_checkpoint.errors import StepExists, StorageFailure
from model_checkpoint.storage.contract.ending import EndingAttempt
from model_checkpoint.storage.contract.failures import attempt_over, require_sealed, typed_errors
from model_checkpoint.storage.contract.names import REPLACED_MANIFEST, check_name, check_new_file
from model_checkpoint.storage.contract.store import FileStat
from model_checkpoint.storage.local.commit import (
    Staged,
    commit_new,
    commit_over,
    commit_swap,
    draft_name,
    link_copy,
    write_manifest,
)
from model_checkpoint.storage.local.data_files.files import (
    DirectIO,
    LocalReader,
    LocalWriter,
    create_writer,
    flushed_reader,
)
from model_checkpoint.storage.local.locks import AttemptLock
from model_checkpoint.storage.local.paths import (
    RootPaths,
    attempt_of,
    decode_manifest,
    is_published,
    let_go,
    list_folder,
    log,
    remove_tree,
    stamped_files,
)
from model_checkpoint.storage.local.replaced_files import keep_manifest, retire_files, retire_files_of
from model_checkpoint.storage.local.trash import throw_version

_TRIES = 16
_ROOM = "written"  # no name of a file that is adopted: those lie beside it


class LocalAttempt(EndingAttempt):
    """One attempt; see :class:`model_checkpoint.storage.contract.store.Attempt`."""

    def __init__(self, root: RootPaths, name: str, attempt: str, *, direct: bool) -> None:
        self._root, self._name, self._attempt = root, name, attempt
        self._path = root.stage(attempt)
        self._writers: dict[str, LocalWriter] = {}
        self._linked: list[str] = []
        self._joined, self._obsolete = False, tuple[str, ...]()
        self._swapped = False  # whether the stage is, or may be, what was replaced
        self._folder: int | None = None  # of the checkpoint that was replaced in its place, open
        self._over = self._has_room = False
        with typed_errors(self._path, "could not begin an attempt"):
            device = self._begin()
        self._direct = DirectIO(root.calls, device, wanted=direct)

    def _begin(self) -> int:
        """Make the lock and the stage; return the device it is on."""
        self._lock = AttemptLock(self._root, self._attempt, self._name)
        try:
            self._root.calls.mkdir(self._path)
            return self._root.calls.lstat(self._path).st_dev
        except BaseException:
            self.abort()
            raise

    def beat(self) -> None:
        """Show that the attempt is alive."""
        self._lock.beat()

    @property
    def _files(self) -> tuple[str, ...]:
        return (*self._writers, *self._linked)

    def create(self, file: str, size: int) -> LocalWriter:
        """Open a new file and reserve ``size`` bytes for it."""
        self._require_open()
        check_new_file(file, self._files, self._path)
        path = f"{self._path}/{file}"
        writer = create_writer(self._root.calls, path, size, direct=self._direct, beat=self.beat)
        self._writers[file] = writer
        return writer

    def link(self, file: str, *, source: str, source_file: str, identity: str) -> bool:
        """Give a file of a published checkpoint a second name here."""
        self._require_open()
        check_new_file(file, self._files, self._path)
        path = f"{self._root.checkpoint(check_name(source, self._path))}/{check_name(source_file, self._path)}"
        with typed_errors(f"{self._path}/{file}", f"could not be linked to {path}"):
            linked = link_copy(self._root.calls, path, self._path, file=file, identity=identity)
        if linked:
            self._linked.append(file)
        return linked

    def room(self) -> str:
        """A folder within the stage in which others may write."""
        self._require_open()
        path = f"{self._path}/{_ROOM}"
        with typed_errors(path, "could not make room for files of others"):
            self._root.calls.mkdir(path)
        self._has_room = True
        return path

    def adopt(self, source: str, file: str) -> LocalReader:
        """Take a file out of the room and flush it."""
        self._require_open()
        check_new_file(file, self._files, self._path)
        self._linked.append(file)
        with typed_errors(f"{self._path}/{file}", "could not be taken into the stage"):
            self._root.calls.rename(f"{self._path}/{_ROOM}/{source}", f"{self._path}/{file}")
            self._lock.beat()
            return flushed_reader(self._root.calls, self._path, file)

    def stamps(self) -> dict[str, FileStat]:
        """Stamps of the files staged so far."""
        with typed_errors(self._path, "could not look at the staged files"):
            return stamped_files(self._root.calls, self._path)

    def publish(self, manifest: bytes, *, replace: bool = False, obsolete: Sequence[str] = ()) -> None:
        """Make the checkpoint visible and durable."""
        self._require_open()
        require_sealed(self._path, self._writers)
        old = tuple(check_name(file, self._path) for file in obsolete)
        staged = Staged(root=self._root, name=self._name, attempt=self._attempt, files=self._files)
        if self._has_room:
            with typed_errors(self._path, "could not clear the room of others"):
                remove_tree(self._root.calls, f"{self._path}/{_ROOM}")
        write_manifest(staged, manifest)
        self._commit(staged, replace=replace, obsolete=old)
        self._over = True
        self._tidy()

    def _commit(self, staged: Staged, *, replace: bool, obsolete: tuple[str, ...]) -> None:
        """Commit as new or over the old, whichever the name turns out to be."""
        for _ in range(_TRIES):
            if replace and self._replace(staged, obsolete):
                return
            try:
                commit_new(staged)
            except StepExists:
                if not replace or not self._is_published():
                    raise
            else:
                return
        raise StorageFailure(
            f"{staged.target}: the checkpoint came and went {_TRIES} times. Let one process at a time replace it.",
            staged.target,
        )

    def _replace(self, staged: Staged, obsolete: tuple[str, ...]) -> bool:
        if not self._is_published():
            return False
        if any(self._attempt not in file for file in staged.files):  # the old version may have a file of that name
            self._swapped = True  # if it raises, it may be
            self._swapped = commit_swap(staged)
            return self._swapped
        with typed_errors(self._path, "could not note what will be replaced"):
            self._obsolete = self._unclaimed(*self._replaced(obsolete))
            # durable before the first file joins: recovery must know where to look for strays
            self._lock.note_obsolete(self._obsolete)
            keep_manifest(self._root, self._name, self._path)
        self._joined = True
        self._folder = commit_over(staged)
        if self._folder is not None:
            return True
        with typed_errors(self._path, "could not forget what was to be replaced"):
            remove_tree(self._root.calls, f"{self._path}/{REPLACED_MANIFEST}")
        return False

    def _replaced(self, obsolete: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        """What goes, and whose it is: ``obsolete``, or all of a version that came meanwhile, unknown to the caller."""
        calls, folder = self._root.calls, self._root.checkpoint(self._name)
        if not {*obsolete}.isdisjoint(list_folder(calls, folder)):
            return obsolete, ""
        try:
            manifest = decode_manifest(calls, folder)
        except FileNotFoundError:
            return obsolete, ""
        if manifest is None:
            return obsolete, ""
        return manifest.file_names, manifest.attempt

    def _unclaimed(self, obsolete: tuple[str, ...], owner: str) -> tuple[str, ...]:
        """What of ``obsolete`` belongs to no attempt that may be about to switch to it; its ``owner`` already has."""
        entries = list_folder(self._root.calls, self._root.staging) if obsolete else []
        others = {entry.removesuffix(".lock") for entry in entries} - {self._attempt, owner}
        return tuple(f for f in obsolete if f not in self._files and not any(other in f for other in others))

    def _is_published(self) -> bool:
        with typed_errors(self._root.checkpoint(self._name), "could not look at the checkpoint to replace"):
            return is_published(self._root, self._name)

    def _tidy(self) -> None:
        """Clean up behind a commit; whatever fails is recovery's to finish, the checkpoint is safe."""
        try:
            if self._swapped:
                throw_version(self._root, self._name, self._path)
            self._retire()
            remove_tree(self._root.calls, self._path)
        except OSError as error:
            log.warning("%s: leavings stay until the next recovery (%s)", self._path, error)
            self._lock.leave()
        else:
            self._lock.release()
        finally:
            if self._folder is not None:
                let_go(self._root.calls, self._folder)

    def _retire(self) -> None:
        """Take what was replaced out of the folder it was in; if replies were lost on the way, that may be any."""
        root, name, files = self._root, self._name, self._obsolete
        if self._folder is not None:
            retire_files(root, name, files, folder=self._folder, kept=self._path)
        else:
            retire_files_of(root, name, files, attempt=self._attempt, kept=self._path)

    def abort(self) -> None:
        """Remove everything staged; what cannot be removed now is left to recovery."""
        if not self._stop():
            return
        try:
            clean = self._withdraw()
            if clean or not self._swapped:
                remove_tree(self._root.calls, self._path)
        except OSError as error:
            log.warning("%s: leavings stay until the next recovery (%s)", self._path, error)
            clean = False
        if clean:
            self._lock.release()
        else:
            self._lock.leave()

    def _withdraw(self) -> bool:
        """Take new files out of an existing checkpoint; False if its manifest is, or may be, already ours.

        Then both versions stay where they are, and recovery decides which one goes.
        """
        if not self._joined and not self._swapped:
            return True
        if attempt_of(self._root.calls, self._root.checkpoint(self._name)) in (self._attempt, ""):
            return False
        for file in () if self._swapped else (*self._files, draft_name(self._attempt)):
            remove_tree(self._root.calls, f"{self._root.checkpoint(self._name)}/{file}")
        return True

    def _require_open(self) -> None:
        if self._over:
            raise attempt_over(self._path)
