"""Examination: the five checks of one checkpoint, each byte of it read once, shared ones once for all of a scrub.

A checkpoint of a root is read by the engine, whoever wrote its files; a bare file is compared with its record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from model_checkpoint.database.records import Checkpoint
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.reading.chunks.healthy_copies import HealthyCopies
from model_checkpoint.engine.reading.verify import Damage, Health, verify_named
from model_checkpoint.errors import CheckpointNotFound, CorruptedCheckpoint, WrongReference
from model_checkpoint.integrity.checksums import ChecksumCalculator, FileChecksum, FileState
from model_checkpoint.integrity.verdict import Check, CheckName, CheckpointHealth
from model_checkpoint.manifest import decode
from model_checkpoint.storage import Store, open_store

NATIVE = "native"  # the backend whose files the engine itself has written
# makes sense of a checkpoint, given its record, or raises, or returns False; NotImplementedError: nobody here can tell
Loader = Callable[[Checkpoint], object]

_STATES = {
    FileState.VERIFIED: None,
    FileState.FILE_MISSING: CheckName.FILES,
    FileState.SIZE_MISMATCH: CheckName.SIZE,
    FileState.CHECKSUM_MISMATCH: CheckName.DIGEST,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The answers for one checkpoint; ``identity`` tells it from any other that might stand in its place."""

    outcome: CheckpointHealth
    checks: Sequence[Check]
    path: str
    bytes_read: int = 0
    identity: str = ""
    parity: Sequence[str] = ()  # what is wrong with its parity files, which the state itself does not need


class _Answers:
    """The checks while they are made: a question fails by a problem, and is open until it is reached."""

    def __init__(self) -> None:
        self._problems: defaultdict[CheckName, list[str]] = defaultdict(list)
        self._open: set[CheckName] = set(CheckName)
        self._unread = False

    def fail(self, name: CheckName, problem: str) -> None:
        self._open.discard(name)
        self._problems[name].append(problem)

    def unread(self, name: CheckName, problem: str) -> None:
        self._unread = True
        self._problems[name].append(problem)

    def reach(self, names: Iterable[CheckName]) -> None:
        self._open -= {name for name in names if not self._problems[name]}

    def failed(self, name: CheckName) -> bool:
        return bool(self._problems[name])

    def checks(self) -> list[Check]:
        return [
            Check(
                name=name,
                passed=None if name in self._open else not self._problems[name],
                problems=tuple(self._problems[name]),
            )
            for name in CheckName
        ]

    def outcome(self, *, missing: bool = False) -> CheckpointHealth:
        if missing:
            return CheckpointHealth.MISSING
        if any(check.passed is False for check in self.checks()):
            return CheckpointHealth.DAMAGED
        return CheckpointHealth.UNREADABLE if self._unread else CheckpointHealth.HEALTHY


def examine_folder(record: Checkpoint, *, load: Loader | None, copies: HealthyCopies) -> Examination:
    """Check a checkpoint of a root, which its record tells; of what ``copies`` knows to be whole only the header."""
    store, answers = open_store(record.root), _Answers()
    where = path_of(store, record.name)
    try:
        health = verify_named(store, record.name, copies)
    except (CheckpointNotFound, WrongReference) as error:
        answers.reach([CheckName.RECORD])
        answers.fail(CheckName.FILES, str(error))
        return Examination(outcome=answers.outcome(missing=True), checks=answers.checks(), path=where)
    except OSError as error:
        answers.unread(CheckName.FILES, str(error))
        return Examination(outcome=answers.outcome(), checks=answers.checks(), path=where)
    _judge_record(record, health, answers)
    if not answers.failed(CheckName.RECORD):
        _judge_files(store, record.name, health, answers)
        _judge_loading(record, load, answers)
    return Examination(
        outcome=answers.outcome(),
        checks=answers.checks(),
        path=where,
        bytes_read=health.bytes_read,
        identity=health.info.id,
        parity=tuple(damage.problem for damage in health.parity),
    )


def _judge_record(record: Checkpoint, health: Health, answers: _Answers) -> None:
    answers.reach([CheckName.RECORD])
    for damage in health.damage:
        if not damage.file:
            (answers.unread if damage.unread else answers.fail)(CheckName.RECORD, damage.problem)
    told, found = record.step, health.info.step
    if found is not None and told != found:
        answers.fail(
            CheckName.RECORD,
            f"{health.info.path}: is of step {found}, its record says {told}: they are not of one checkpoint.",
        )


def _judge_files(store: Store, name: str, health: Health, answers: _Answers) -> None:
    """Sort the damage that the engine found by the question it answers."""
    found = [damage for damage in health.damage if damage.file]
    recorded, present = (_recorded_sizes(store, name), store.files(name)) if found else ({}, {})
    for damage in found:
        question = _question(damage, recorded, present)
        (answers.unread if damage.unread else answers.fail)(question, damage.problem)
    answers.reach([CheckName.FILES, CheckName.SIZE, CheckName.DIGEST])


def _recorded_sizes(store: Store, name: str) -> dict[str, int]:
    manifest = decode(store.read_manifest(name), path_of(store, name))
    return {record.name: record.size for record in (*manifest.files, *manifest.extras)}


def _question(damage: Damage, recorded: Mapping[str, int], present: Mapping[str, int]) -> CheckName:
    if damage.file not in present:
        return CheckName.FILES
    if present[damage.file] != recorded.get(damage.file):
        return CheckName.SIZE
    return CheckName.DIGEST if damage.unread or damage.chunk is not None else CheckName.LOADABLE


def _judge_loading(record: Checkpoint, load: Loader | None, answers: _Answers) -> None:
    """Let who knows the files make sense of them, but never of bytes that are not those that were saved."""
    if any(check.problems for check in answers.checks()):
        return
    if load is None:
        if record.root and record.backend == NATIVE:  # manifest, headers and places of tensors were checked on the way
            answers.reach([CheckName.LOADABLE])
        return
    try:
        refused = load(record) is False
    except NotImplementedError:
        return
    except CorruptedCheckpoint as error:
        answers.fail(CheckName.LOADABLE, str(error))
    except (OSError, MemoryError) as error:
        answers.unread(CheckName.LOADABLE, str(error))
    except Exception as error:  # noqa: BLE001  # a reader of foreign files may fail in any way; all of them are told
        answers.fail(CheckName.LOADABLE, f"{type(error).__name__}: {error}")
    else:
        if refused:
            answers.fail(CheckName.LOADABLE, "its reader says that it cannot be loaded")
        answers.reach([CheckName.LOADABLE])


def examine_file(
    record: Checkpoint, *, calculator: ChecksumCalculator, expected: FileChecksum | None, load: Loader | None
) -> Examination:
    """Check a bare file, which the record's ``file_path`` tells, against ``expected``."""
    answers, path = _Answers(), record.file_path
    answers.reach([CheckName.RECORD])
    if expected is None:
        why = "no checksum was recorded, so nothing can be said of its bytes" if path else "no place was recorded"
        answers.fail(CheckName.RECORD, f"{path or record.id}: {why}.")
        return Examination(outcome=answers.outcome(), checks=answers.checks(), path=path)
    state = calculator.verify_file_with_metadata(path, expected)
    read = expected.size if state in (FileState.VERIFIED, FileState.CHECKSUM_MISMATCH) else 0
    if state is FileState.UNREADABLE:
        answers.unread(CheckName.FILES, f"{path}: could not be read here and now")
    else:
        _judge_state(path, state, answers)
        _judge_loading(record, load, answers)
    missing = state is FileState.FILE_MISSING
    return Examination(outcome=answers.outcome(missing=missing), checks=answers.checks(), path=path, bytes_read=read)


def _judge_state(path: str, state: FileState, answers: _Answers) -> None:
    question, asked = _STATES[state], [CheckName.FILES, CheckName.SIZE, CheckName.DIGEST]
    if question is not None:
        asked = asked[: asked.index(question)]
        answers.fail(question, f"{path}: {state.value.replace('_', ' ')}")
    answers.reach(asked)
