"""Trash: deleted checkpoints wait here until their grace ends, and can be brought back until then.

``.trash/<token>`` with a manifest is a checkpoint, deleted or replaced; without one it holds files that were in the
way. ``doomed~<token>`` is being removed and can no longer be brought back. A deletion frees room, so it works where
there is none: if a disk has no block left for a name in ``.trash``, the token lies in ``checkpoints``; if not even
there, the checkpoint is removed at once.

A deletion of many ranks has its token before anything happens. Where a plain file lies under a token, that deletion was
given up: no folder can be renamed to its name any more.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from model_checkpoint.errors import CheckpointException, StorageFailure
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.failures import (
    FULL,
    deletion_over,
    doubt,
    in_doubt,
    name_taken_again,
    no_such_checkpoint,
    not_in_trash,
    typed_errors,
)
from model_checkpoint.storage.contract.host import Moment
from model_checkpoint.storage.contract.names import MANIFEST, TrashToken
from model_checkpoint.storage.contract.store import Tell, Trashed, Waiting, nobody
from model_checkpoint.storage.local.paths import (
    RootPaths,
    age_of,
    flush_folder,
    is_published,
    let_go,
    list_folder,
    log,
    make_folder,
    read_manifest,
    regular_files,
    remove_tree,
)

_DOOMED = "doomed~"
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_TRIES = 16


def places(root: RootPaths) -> tuple[str, str]:
    """Where deleted checkpoints lie, the usual place first; no name of a checkpoint is that of a token."""
    return root.trash, root.checkpoints


def _entries(root: RootPaths) -> Iterator[tuple[TrashToken, str]]:
    """Everything in the trash, with the folder it lies in."""
    for place in places(root):
        for text in list_folder(root.calls, place):
            if token := TrashToken.find(text):
                yield token, place


def discard(root: RootPaths, name: str, planned: TrashToken | None = None) -> Trashed:
    """Move a published checkpoint to the trash, durably, unless the ``planned`` deletion was given up."""
    source = root.checkpoint(name)
    with typed_errors(source, "could not be moved to the trash"):
        if not is_published(root, name):
            raise no_such_checkpoint(source, root.path)
        token = last_token(root, name) if planned is None else planned
        try:
            nbytes = sum(regular_files(root.calls, source).values())
            place = _put_away(root, source, token)
        except FileNotFoundError as error:
            if isinstance(error, CheckpointException) or is_published(root, name):
                raise
            raise no_such_checkpoint(source, root.path) from error  # another process deletes it too
        except (NotADirectoryError, FileExistsError) as error:
            if not is_given_up(root, token):
                raise
            raise deletion_over(source) from error
        if place is None:
            if is_given_up(root, token):
                raise deletion_over(source)
            _unpublish(root, source)
    with in_doubt(source, "it was deleted"):
        if place is None:
            _remove_unpublished(root, source)
        else:
            flush_move(root, source=root.checkpoints, target=place)
    return Trashed(name=name, token=str(token), deleted=token.deleted, nbytes=nbytes)


def last_token(root: RootPaths, name: str) -> TrashToken:
    """A token that comes after all there are."""
    order = 1 + max((token.order for token, _ in _entries(root)), default=0)
    return TrashToken.fresh(name, order=order, moment=root.calls.now())


def is_given_up(root: RootPaths, token: TrashToken) -> bool:
    """Whether a plain file says that nothing is to be deleted under this token."""
    return any(is_plain(root, f"{place}/{token}") for place in places(root))


def is_plain(root: RootPaths, path: str) -> bool:
    """Whether a plain file lies there."""
    try:
        return stat.S_ISREG(root.calls.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _put_away(root: RootPaths, source: str, token: TrashToken) -> str | None:
    """Rename a checkpoint to its token where there is room for that name; return the folder, or None if nowhere."""
    identity = root.calls.lstat(source)
    for place in places(root):
        try:
            if place == root.trash:
                make_folder(root.calls, place)
            _move(root, source, f"{place}/{token}", identity)
        except OSError as error:
            if error.errno not in FULL or isinstance(error, CheckpointException):  # it may be there already
                raise
            log.warning("%s: the disk has no room even for a name in %s (%s)", source, place, error)
        else:
            return place
    return None


def _unpublish(root: RootPaths, folder: str) -> None:
    """Remove the manifest, so that it is no checkpoint; if the reply was lost on the way, what is there tells."""
    manifest = f"{folder}/{MANIFEST}"
    try:
        root.calls.unlink(manifest)
    except OSError as error:
        try:
            root.calls.lstat(manifest)
        except FileNotFoundError:
            log.warning("%s: its removal reported %s, but it is gone", manifest, error)
        except OSError as second:
            raise doubt(error, folder, "it may have been deleted") from second
        else:
            raise


def _remove_unpublished(root: RootPaths, folder: str) -> None:
    """Remove what has lost its manifest; that is flushed first, since half a checkpoint must not come back."""
    log.warning("%s: is removed at once and cannot be brought back; the disk has no room to keep it", folder)
    flush_folder(root.calls, folder)
    remove_tree(root.calls, folder)


def flush_move(root: RootPaths, *, source: str, target: str) -> None:
    """Make a rename durable, the new name first: the old one may vanish only when the new one cannot."""
    flush_folder(root.calls, target)
    if source != target:
        flush_folder(root.calls, source)


def _move(root: RootPaths, source: str, target: str, identity: os.stat_result) -> None:
    """Rename a folder; if the reply was lost on the way, the folder's own number tells whether it arrived."""
    try:
        root.calls.rename(source, target)
    except OSError as error:
        if not _has_arrived(root, identity, target, error):
            raise
        log.warning("%s: its rename reported %s, but it arrived", target, error)


def _has_arrived(root: RootPaths, identity: os.stat_result, target: str, error: OSError) -> bool:
    """Let what is in place decide what became of a rename; if it cannot be looked at, nobody knows."""
    try:
        return os.path.samestat(identity, root.calls.lstat(target))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as second:
        raise doubt(error, target, "it may have been moved there") from second


def contents(root: RootPaths) -> list[Trashed]:
    """What can be brought back, in the order in which it was deleted."""
    with typed_errors(root.trash, "could not be listed"):
        entries = sorted(_entries(root), key=lambda entry: entry[0].rank)
        return [item for token, place in entries if (item := _describe(root, token, place))]


def _describe(root: RootPaths, token: TrashToken, place: str) -> Trashed | None:
    try:
        files = regular_files(root.calls, f"{place}/{token}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    if MANIFEST not in files:
        return None
    return Trashed(name=token.name, token=str(token), deleted=token.deleted, nbytes=sum(files.values()))


def _find(root: RootPaths, token: TrashToken) -> str:
    """The folder in which a token with a checkpoint lies."""
    for place in places(root):
        if _describe(root, token, place) is not None:
            return place
    raise not_in_trash(f"{root.trash}/{token}", root.path)


def read(root: RootPaths, text: str) -> bytes:
    """The manifest of what lies in the trash under a token."""
    token = TrashToken.parse(text, root.trash)
    with typed_errors(f"{root.trash}/{token}", "could not be read"):
        for place in places(root):
            with suppress(FileNotFoundError):
                return read_manifest(root.calls, f"{place}/{token}")
        raise not_in_trash(f"{root.trash}/{token}", root.path)


def bring_back(root: RootPaths, text: str) -> str:
    """Undo a discard, durably; return the name."""
    token = TrashToken.parse(text, root.trash)
    target = root.checkpoint(token.name)
    with typed_errors(f"{root.trash}/{token}", "could not be brought back"):
        place = _find(root, token)
        make_folder(root.calls, root.checkpoints)
        _move_back(root, f"{place}/{token}", token.name)
    with in_doubt(target, "it was brought back"):
        flush_move(root, source=place, target=root.checkpoints)
    return token.name


def _move_back(root: RootPaths, source: str, name: str) -> None:
    identity = root.calls.lstat(source)
    for _ in range(_TRIES):
        try:
            return _move(root, source, root.checkpoint(name), identity)
        except OSError as error:
            if error.errno not in (*_TAKEN, errno.ENOTDIR):
                raise
            if not clear_the_way(root, name):
                raise name_taken_again(root.checkpoint(name)) from error
    raise StorageFailure(f"{source}: something keeps filling {root.checkpoint(name)}. Stop it, then try again.", source)


def clear_the_way(root: RootPaths, name: str) -> bool:
    """Empty a folder that stands under ``name`` without a manifest; False if a checkpoint or no folder is there.

    Its entries go to the trash one by one, by name, and the folder itself stays: a checkpoint that another process
    publishes in this very moment has other entries, so it cannot be moved by mistake.
    """
    folder = root.checkpoint(name)
    try:
        real = stat.S_ISDIR(root.calls.lstat(folder).st_mode)
        entries = root.calls.listdir(folder) if real else []
    except FileNotFoundError:
        return True
    if not real or MANIFEST in entries:
        return False
    log.warning("%s: holds %d entries but no manifest; they go to the trash", folder, len(entries))
    throw_files(root, name, entries)
    return True


def throw_files(root: RootPaths, name: str, files: Sequence[str], *, folder: int | None = None) -> str:
    """Move single files of ``name``, or of its open ``folder``, to the trash; those already gone are no error.

    Returns the folder they are in.
    """
    bin_ = f"{root.trash}/{last_token(root, name)}"
    make_folder(root.calls, root.trash)
    root.calls.mkdir(bin_)
    for file in files:
        source = f"{root.checkpoint(name)}/{file}" if folder is None else file
        try:
            root.calls.rename(source, f"{bin_}/{file}", out_of=folder)
        except FileNotFoundError:
            log.debug("%s/%s: gone already", name, file)
    return bin_


class Purged(msgspec.Struct, frozen=True):
    """What was removed from the trash for good, and what is left there."""

    tokens: list[str]
    nbytes: int
    waiting: list[Waiting]


def purge(root: RootPaths, graces: Graces, tell: Tell = nobody) -> Purged:
    """Remove what has been in the trash for longer than its grace.

    Each is renamed first, and that is flushed: nobody can bring back a checkpoint that is half removed.
    """
    calls = root.calls
    left = [f"{place}/{text}" for place in places(root) for text in list_folder(calls, place) if _is_doomed(text)]
    over, waiting = _judge(root, graces)
    taken = [(token, path) for token, place in over if (path := _doom(root, token, place))]
    for place in sorted({os.path.dirname(path) for _, path in taken if _is_doomed(os.path.basename(path))}):
        flush_folder(calls, place)
    nbytes = sum(remove_tree(calls, path) for path in left)
    for token, path in taken:
        nbytes += remove_tree(calls, path)
        tell(str(token))
    for path in _idle_words(root, graces):
        remove_tree(calls, path)
    return Purged([str(token) for token, _ in taken], nbytes, waiting)


def overdue(root: RootPaths, graces: Graces) -> Purged:
    """What :func:`purge` would remove."""
    over, waiting = _judge(root, graces)
    found = [item for token, place in over if (item := _describe(root, token, place))]
    return Purged([str(token) for token, _ in over], sum(item.nbytes for item in found), waiting)


def _judge(root: RootPaths, graces: Graces) -> tuple[list[tuple[TrashToken, str]], list[Waiting]]:
    """What has waited for its grace, with the folder it lies in, and what has not yet."""
    now = root.calls.now()
    held = [(token, place) for token, place in _entries(root) if not is_plain(root, f"{place}/{token}")]
    aged = [(token, place, _age(root, token, place, now)) for token, place in held]
    left = [(token, place, graces.of_trash(str(token)) - age) for token, place, age in aged if age >= 0]
    over = [(token, place) for token, place, seconds in left if seconds <= 0]
    return over, [Waiting(key=str(token), seconds=seconds) for token, _, seconds in left if seconds > 0]


def _idle_words(root: RootPaths, graces: Graces) -> list[str]:
    """Words that a deletion was given up, which nobody needs any more.

    Whoever was stopped in that deletion may go on at any time, so they stay as long as a checkpoint has that name, and
    then for the grace of a process of another machine.
    """
    now = root.calls.now()
    words = [(token, place) for token, place in _entries(root) if is_plain(root, f"{place}/{token}")]
    idle = [(token, place) for token, place in words if not is_published(root, token.name)]
    return [f"{place}/{token}" for token, place in idle if _age(root, token, place, now, kind=0) >= graces.foreign]


def _is_doomed(text: str) -> bool:
    return text.startswith(_DOOMED) and TrashToken.find(text.removeprefix(_DOOMED)) is not None


def _age(root: RootPaths, token: TrashToken, place: str, now: Moment, *, kind: int = os.O_DIRECTORY) -> float:
    """Seconds since a deletion; of another boot's, the least that file system and wall clock agree on."""
    known = token.age(now)
    if known is not None:
        return known
    try:
        fd = root.calls.open(f"{place}/{token}", os.O_RDONLY | kind)
    except OSError as error:
        if error.errno not in _NO_FOLDER:
            raise
        return -1.0  # brought back meanwhile, or nothing of ours
    try:
        seen = age_of(root.calls, fd, root.calls.fstat(fd).st_ctime, clock=place)
    finally:
        let_go(root.calls, fd)
    told = (now.wall - token.nanoseconds) / 1e9
    return min(seen, told) if told >= 0 else seen


def _doom(root: RootPaths, token: TrashToken, place: str) -> str | None:
    """Take away the chance to bring it back; return where it lies now, or None if it is gone."""
    path, doomed = f"{place}/{token}", f"{place}/{_DOOMED}{token}"
    try:
        root.calls.rename(path, doomed)
    except FileNotFoundError:
        return None  # brought back, or another recovery has it
    except OSError as error:
        if error.errno not in FULL:
            raise
    else:
        return doomed
    with suppress(FileNotFoundError):  # no room for the other name; without its manifest it cannot come back either
        root.calls.unlink(f"{path}/{MANIFEST}")
        flush_folder(root.calls, path)
    return path


def throw_version(root: RootPaths, name: str, folder: str) -> None:
    """Move a version of ``name`` that another one has changed places with to the trash, durably; it may be gone.

    On a disk that has no room for that, it is removed.
    """
    try:
        place = _put_away(root, folder, last_token(root, name))
    except FileNotFoundError:
        log.debug("%s: gone already", folder)
        return
    if place is not None:
        flush_move(root, source=root.staging, target=place)
        return
    log.warning("%s: the version it replaced is removed at once; the disk has no room to keep it", name)
    remove_tree(root.calls, folder)
