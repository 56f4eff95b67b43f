"""Verifier: which checkpoints are healthy, of one, of an experiment, or of a whole store a piece at a time.

It never puts another checkpoint in the place of a damaged one. Mending is left to the ``repair`` it is given, and what
that did is verified like anything else.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from model_checkpoint.database.records import Checkpoint
from model_checkpoint.engine.reading.chunks.healthy_copies import HealthyCopies
from model_checkpoint.errors import OptionInvalid, WrongReference
from model_checkpoint.integrity.backup import back_up_file, back_up_folder
from model_checkpoint.integrity.checksums import ChecksumCalculator, FileChecksum, FilePath
from model_checkpoint.integrity.examination import Examination, Loader, examine_file, examine_folder
from model_checkpoint.integrity.file_tracker import IntegrityTracker
from model_checkpoint.integrity.root_catalog import RootCatalog, VerifiedCatalog
from model_checkpoint.integrity.verdict import CheckpointHealth, CheckpointVerdict, ScrubReport, details_of
from model_checkpoint.storage.locate import Root

log = logging.getLogger("model_checkpoint.integrity")

Emit = Callable[..., object]  # told the name of an event and what it is about; a False before a check forbids it
Repair = Callable[[str, str], object]  # mends the checkpoint of that name in that root, or raises

_PAGE = 100  # records asked for at once
_DELETED = "deleted"


class CheckpointVerifier:
    """Asks five questions of each checkpoint: record, files, size, digest, loadable.

    ``catalog`` knows the checkpoints and keeps the verdicts; ``tracker`` knows checksums of bare files; ``load`` makes
    sense of files of other backends; ``repair`` mends; ``emit`` is told of every check.

    Example:
        >>> import model_checkpoint as mc
        >>> info = mc.save("memory://doc-verifier", {"a": b"bytes"}, step=1)
        >>> verifier = CheckpointVerifier.of_root("memory://doc-verifier")
        >>> verdict = verifier.verify_checkpoint(info.id)
        >>> str(verdict.outcome), [check.name.value for check in verdict.checks if check.passed]
        ('healthy', ['record', 'files', 'size', 'digest', 'loadable'])
    """

    def __init__(
        self,
        catalog: VerifiedCatalog,
        tracker: IntegrityTracker | None = None,
        *,
        load: Loader | None = None,
        repair: Repair | None = None,
        emit: Emit | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog, self._tracker = catalog, tracker
        self._load, self._repair, self._emit, self._clock = load, repair, emit, clock
        self._calculator = ChecksumCalculator()

    @classmethod
    def of_root(cls, root: Root, *, memory: FilePath | None = None, **options: Any) -> CheckpointVerifier:
        """A verifier of a plain root, which remembers in ``memory``, or in the root, what it has verified."""
        return cls(RootCatalog(root, memory=memory), **options)

    def verify_checkpoint(self, checkpoint_id: str, *, repair: bool = False) -> CheckpointVerdict:
        """Verify one checkpoint; with ``repair`` a damaged one is mended, if it can be, and verified again.

        Raises:
            WrongReference: the catalog knows no such checkpoint.
        """
        self._require_repair(repair)
        return self._verify(self._record(checkpoint_id), HealthyCopies(), repair=repair)

    def _record(self, checkpoint_id: str) -> Checkpoint:
        record = self._catalog.get_checkpoint(checkpoint_id)
        if record is None or record.state == _DELETED:
            what = "knows no such checkpoint" if record is None else "knows it as deleted"
            raise WrongReference(f"{checkpoint_id}: the catalog {what}. List what there is first.")
        return record

    def verify_experiment_checkpoints(self, experiment_id: str, *, repair: bool = False) -> ScrubReport:
        """Verify every checkpoint of one experiment."""
        self._require_repair(repair)
        return self._run(self._catalog.get_checkpoints_by_experiment(experiment_id), repair=repair)

    def verify_all_checkpoints(self, *, repair: bool = False) -> ScrubReport:
        """Verify every checkpoint the catalog knows."""
        return self.scrub(repair=repair)

    def scrub(
        self,
        *,
        seconds: float | None = None,
        sample: float | None = None,
        repair: bool = False,
        seed: int | None = None,
    ) -> ScrubReport:
        """Verify as much as ``seconds`` allow, or a random ``sample`` (a share from 0 to 1), longest unverified first.

        Each verdict is kept before the next checkpoint is begun, so the next call, of this process or of another,
        goes on where this one ended, however it ended. At least one checkpoint is verified, so that calls that are
        shorter than that still come round.
        """
        self._require_repair(repair)
        if seconds is not None and not seconds > 0:
            raise OptionInvalid(f"scrub: seconds is {seconds!r}, expected more than 0.")
        if sample is not None and not 0 < sample <= 1:
            raise OptionInvalid(f"scrub: sample is {sample!r}, expected a share above 0 and up to 1.")
        dice = random.Random(seed)
        due = (one for one in self._due() if sample is None or dice.random() < sample)
        report = self._run(due, repair=repair, seconds=seconds)
        return report if sample is None else replace(report, complete=False)

    def _due(self) -> Iterator[Checkpoint]:
        """Every record once, longest unverified first; those that stay due were left out, or cannot be kept."""
        begun, seen, limit = time.time(), set[str](), _PAGE
        while True:
            page = self._catalog.due_for_verification(before=begun, limit=limit)
            fresh = [record for record in page if record.id not in seen]
            for record in fresh:
                seen.add(record.id)
                yield record
            if len(page) < limit:
                return
            limit = _PAGE + len(page) - len(fresh)

    def create_checkpoint_backup(self, checkpoint_id: str, target: Root) -> str:
        """Copy a checkpoint to another root (a bare file: to a folder), each byte compared on the way; where it lies.

        The copy appears when it is whole and durable. ``mc.load`` reads it, and ``mc.repair(source=target)`` takes from
        it what is lost.

        Raises:
            CorruptedCheckpoint: it is damaged; nothing appears.
        """
        record = self._record(checkpoint_id)
        if record.root and record.name:
            return back_up_folder(record, target)
        return back_up_file(record, str(target), self._expected(record))

    def _require_repair(self, wanted: bool) -> None:
        if wanted and self._repair is None:
            raise OptionInvalid("verify: repair=True, but the verifier was given no repair=. Pass mc.repair to it.")

    def _run(self, records: Iterable[Checkpoint], *, repair: bool, seconds: float | None = None) -> ScrubReport:
        start, verdicts, complete = self._clock(), list[CheckpointVerdict](), True
        pace, copies = _ReadingPace(seconds, self._clock), HealthyCopies()
        for record in records:
            if verdicts and not pace.allows(record.file_size):
                complete = False
                break
            verdict = self._verify(record, copies, repair=repair)
            pace.learn(verdict.bytes_read)
            verdicts.append(verdict)
        report = ScrubReport(verdicts=verdicts, complete=complete, seconds=self._clock() - start)
        log.info("verified %d checkpoints, %d bytes: %s", len(verdicts), report.bytes_read, dict(report.counts))
        return report

    def _verify(self, record: Checkpoint, copies: HealthyCopies, *, repair: bool) -> CheckpointVerdict:
        start = self._clock()
        allowed = self._tell("before_integrity_check", record)
        if allowed is not None and not allowed:
            return CheckpointVerdict(checkpoint_id=record.id, outcome=CheckpointHealth.UNCHECKED)
        found, repaired = self._examine(record, copies), False
        if repair and (found.outcome is CheckpointHealth.DAMAGED or found.parity):
            found, repaired = self._mend(record, found, copies)
        verdict = CheckpointVerdict(
            checkpoint_id=record.id,
            outcome=found.outcome,
            bytes_read=found.bytes_read,
            seconds=self._clock() - start,
            details=details_of(found.checks, path=found.path, parity=found.parity, repaired=repaired),
        )
        self._catalog.record_integrity(verdict)
        if not verdict.ok:
            log.error("%s: %s: %s", verdict.path, verdict.outcome, "; ".join(verdict.problems[:3]))
            self._tell("on_integrity_failure", record, verdict=verdict)
        if verdict.parity:
            log.warning("%s: is less protected than it was meant to be: %s", verdict.path, verdict.parity[0])
        self._tell("after_integrity_check", record, verdict=verdict)
        return verdict

    def _examine(self, record: Checkpoint, copies: HealthyCopies) -> Examination:
        if record.root and record.name:
            return examine_folder(record, load=self._load, copies=copies)
        expected = self._expected(record)
        return examine_file(record, calculator=self._calculator, expected=expected, load=self._load)

    def _expected(self, record: Checkpoint) -> FileChecksum | None:
        """What a bare file should be: by its record, else by the tracker."""
        if record.checksum:
            return FileChecksum(
                path=record.file_path, algorithm="sha256", checksum=record.checksum, size=record.file_size
            )
        known = self._tracker.get(record.file_path) if self._tracker and record.file_path else None
        return None if known is None else known.expected

    def _mend(self, record: Checkpoint, found: Examination, copies: HealthyCopies) -> tuple[Examination, bool]:
        """Have it mended, and look again; what is then there must be the same checkpoint."""
        assert self._repair is not None  # refused before
        try:
            self._repair(record.root, record.name)
        except Exception as error:  # noqa: BLE001  # the damage is the finding; that nobody could mend it is told with it
            log.error("%s: could not be repaired: %s", found.path, error)
            return found, False
        again = self._examine(record, copies)
        again = replace(again, bytes_read=found.bytes_read + again.bytes_read)
        if found.identity and again.identity and again.identity != found.identity:
            raise WrongReference(
                f"{found.path}: repair put the checkpoint {again.identity} in place of {found.identity}. "
                "That is another state: bring the old one back from the trash.",
                found.path,
            )
        return again, again.outcome is CheckpointHealth.HEALTHY and not again.parity

    def _tell(self, event: str, record: Checkpoint, **data: Any) -> object:
        if self._emit is None:
            return None
        return self._emit(event, checkpoint_id=record.id, experiment_id=record.experiment_id, **data)


class _ReadingPace:
    """Learns how fast verification goes, and whether one more checkpoint fits the time that is left."""

    def __init__(self, seconds: float | None, clock: Callable[[], float]) -> None:
        self._clock, self._start, self._seconds = clock, clock(), seconds
        self._bytes = 0

    def learn(self, nbytes: int) -> None:
        self._bytes += nbytes

    def allows(self, nbytes: int) -> bool:
        if self._seconds is None:
            return True
        spent = self._clock() - self._start
        needed = spent * nbytes / self._bytes if self._bytes else 0.0
        return spent + needed < self._seconds
