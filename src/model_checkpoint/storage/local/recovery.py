"""Recovery: removes what dead attempts left, and trash past its grace; never rolls anything forward.

Safe to run at any time, from any number of processes, and to be killed at any call: each step leaves a state the next
sweep understands, and the lock file of an attempt goes last.
"""

from __future__ import annotations

import re

import msgspec

from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.failures import is_refused, typed_errors
from model_checkpoint.storage.contract.names import MANIFEST, is_name
from model_checkpoint.storage.contract.store import Swept, Tell, Waiting
from model_checkpoint.storage.local.locks import AttemptClaim, Owner, claim
from model_checkpoint.storage.local.paths import (
    RootPaths,
    decode_manifest,
    flush_folder,
    is_of_another,
    list_folder,
    log,
    refuse_link,
    regular_files,
    remove_tree,
)
from model_checkpoint.storage.local.replaced_files import retire_files_of
from model_checkpoint.storage.local.trash import overdue, purge, throw_version

_ENTRY = re.compile(r"([A-Za-z0-9_-]{1,64})(?:\.lock)?")


class _SweepTally(msgspec.Struct):
    attempts: list[str] = msgspec.field(default_factory=list)
    waiting: list[Waiting] = msgspec.field(default_factory=list)
    nbytes: int = 0


def sweep(root: RootPaths, graces: Graces, *, dry_run: bool, tell: Tell) -> Swept:
    """Remove leavings; see :meth:`model_checkpoint.storage.contract.store.Store.sweep`."""
    tally = _SweepTally()
    with typed_errors(root.staging, "could not be swept"):
        for folder in (root.staging, root.trash, root.checkpoints):
            refuse_link(root.calls, folder)
        for attempt in _attempts(root):
            if _sweep_attempt(root, attempt, graces, tally, dry_run=dry_run) and not dry_run:
                tell(attempt)
        purged = overdue(root, graces) if dry_run else purge(root, graces, tell)
    swept = Swept(
        attempts=tally.attempts,
        trashed=purged.tokens,
        alive=[left.key for left in tally.waiting],
        nbytes=tally.nbytes + purged.nbytes,
        waiting=[*tally.waiting, *purged.waiting],
    )
    if not dry_run and (swept.attempts or swept.trashed):
        log.info(
            "%s: removed %d dead attempts and %d deleted checkpoints, %d bytes",
            root.path,
            len(swept.attempts),
            len(swept.trashed),
            swept.nbytes,
        )
    return swept


def _attempts(root: RootPaths) -> list[str]:
    matches = (_ENTRY.fullmatch(entry) for entry in list_folder(root.calls, root.staging))
    return sorted({match[1] for match in matches if match})


def _sweep_attempt(root: RootPaths, attempt: str, graces: Graces, tally: _SweepTally, *, dry_run: bool) -> bool:
    """Count an attempt as dead, and remove it, or as waiting; whether it was dead."""
    try:
        held = claim(root, attempt, graces)
        if not isinstance(held, AttemptClaim):
            tally.waiting.append(Waiting(key=attempt, seconds=held))
            return False
        try:
            tally.nbytes += _weigh(root, attempt) if dry_run else _bury(root, attempt, held.owner)
        finally:
            held.release()
    except OSError as error:
        if not is_refused(error):
            raise
        log.warning("%s: belongs to another user, left alone (%s)", root.stage(attempt), error)
        tally.waiting.append(Waiting(key=attempt, seconds=None))
        return False
    tally.attempts.append(attempt)
    return True


def _weigh(root: RootPaths, attempt: str) -> int:
    """Bytes that an attempt has staged."""
    try:
        return sum(regular_files(root.calls, root.stage(attempt)).values())
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _bury(root: RootPaths, attempt: str, owner: Owner | None) -> int:
    """Remove all traces of a dead attempt, its lock last."""
    clear = owner is None or not is_name(owner.name) or _clear_strays(root, attempt, owner)
    if owner is not None and is_name(owner.name):
        _keep_replaced(root, attempt, owner.name)
    nbytes = remove_tree(root.calls, root.stage(attempt))
    if clear:
        remove_tree(root.calls, root.lock(attempt))
    return nbytes


def _keep_replaced(root: RootPaths, attempt: str, name: str) -> None:
    """Bring to the trash what a dead attempt has changed places with."""
    if is_of_another(root.calls, root.stage(attempt), attempt):
        flush_folder(root.calls, root.checkpoints)  # it may have died before it could
        throw_version(root, name, root.stage(attempt))


def _clear_strays(root: RootPaths, attempt: str, owner: Owner) -> bool:
    """Take out of a checkpoint what a dead attempt to replace it left there; False if that cannot be decided.

    If the attempt came to be the checkpoint, the version it replaced goes; if not, its own files go. Nothing the
    manifest in place lists is ever touched.
    """
    folder = root.checkpoint(owner.name)
    try:
        files = regular_files(root.calls, folder)
        own, old = [f for f in files if attempt in f], [f for f in files if f in owner.obsolete]
        if not own and not old:
            return True
        manifest = decode_manifest(root.calls, folder)
    except (FileNotFoundError, NotADirectoryError):
        return True
    if manifest is None:
        log.warning("%s: has files of the dead attempt %s but no usable manifest; nothing removed", folder, attempt)
        return False
    kept = {*manifest.file_names, MANIFEST}
    if manifest.attempt == attempt:
        if old:
            flush_folder(root.calls, folder)  # it died before it could: the new must be durable before the old goes
        gone = [file for file in old if file not in kept]
        retire_files_of(root, owner.name, gone, attempt=attempt, kept=root.stage(attempt))
    else:
        for file in own:
            if file not in kept:
                remove_tree(root.calls, f"{folder}/{file}")
    return True
