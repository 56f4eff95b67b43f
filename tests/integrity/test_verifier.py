"""A verifier names what is wrong with each checkpoint, and never puts another one in its place."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.ground.stored.stored_files import data_file, flip, folder
from tests.integrity.verified_runs import answers, catalog_of, save, verify

import model_checkpoint as mc
from model_checkpoint.engine.reading.chunks import chunk_reader
from model_checkpoint.errors import CorruptedCheckpoint, OptionInvalid, WrongReference
from model_checkpoint.hooks import HookManager
from model_checkpoint.integrity import (
    CheckpointHealth,
    CheckpointVerdict,
    CheckpointVerifier,
)
from model_checkpoint.testing.crash import run_in_child

QUESTIONS = ["record", "files", "size", "digest", "loadable"]


def test_a_healthy_checkpoint_passes_all_five_checks(root):
    verdict = verify(root, 2)

    assert answers(verdict) == dict.fromkeys(QUESTIONS, True)
    assert (verdict.ok, verdict.outcome, verdict.problems) == (True, CheckpointHealth.HEALTHY, ())
    assert verdict.path == str(folder(root, 2))
    assert verdict.bytes_read >= 1_200_000


@pytest.mark.parametrize(
    ("damage", "question"),
    [
        (lambda root: (folder(root, 2) / "manifest.json").write_bytes(b"{}"), "record"),
        (lambda root: flip(folder(root, 2) / "manifest.json"), "record"),
        (lambda root: data_file(root, 2).unlink(), "files"),
        (lambda root: os.truncate(data_file(root, 2), 1000), "size"),
        (lambda root: os.truncate(data_file(root, 2), 10_000_000), "size"),
        (lambda root: flip(data_file(root, 2)), "digest"),
        (lambda root: flip(data_file(root, 2), 20), "digest"),
    ],
    ids=["no manifest of ours", "flipped manifest", "lost file", "cut file", "grown file", "flipped weight", "header"],
)
def test_each_damage_is_found_by_the_check_that_asks_for_it(root, damage, question):
    """Truncated and unloadable files are never called loadable."""
    damage(root)

    verdict = verify(root, 2)

    told = answers(verdict)
    assert verdict.outcome is CheckpointHealth.DAMAGED
    assert told[question] is False
    assert not told["loadable"]
    assert all(told[earlier] for earlier in QUESTIONS[: QUESTIONS.index(question)])
    assert verdict.check(question).problems
    assert verify(root, 1).ok


def test_a_checkpoint_that_is_gone_is_missing_and_no_other_stands_in_for_it(tmp_path, root):
    with catalog_of(tmp_path, root) as database:
        shutil.rmtree(folder(root, 2))

        verdict = CheckpointVerifier(database).verify_checkpoint("c2")

    assert verdict.outcome is CheckpointHealth.MISSING
    assert answers(verdict) == {"record": True, "files": False, "size": None, "digest": None, "loadable": None}


def test_a_record_of_another_checkpoint_is_told(tmp_path, root):
    with catalog_of(tmp_path, root) as database:
        database.update_checkpoint("c2", name="step-00000003")

        verdict = CheckpointVerifier(database).verify_checkpoint("c2")

    assert verdict.outcome is CheckpointHealth.DAMAGED
    assert "is of step 3, its record says 2" in verdict.check("record").problems[0]


def test_what_cannot_be_read_here_and_now_is_not_called_damaged():
    with tempfile.TemporaryDirectory() as place:  # that others may enter
        root = Path(place)
        root.chmod(0o755)
        save(root, 2)
        data_file(root, 2).chmod(0)

        def work(_):
            if os.geteuid() == 0:
                os.setuid(65534)  # root may read everything
            return verify(root, 2)

        verdict = run_in_child(work).value

    assert verdict.outcome is CheckpointHealth.UNREADABLE
    assert [verdict.check(name).passed for name in ("files", "digest", "loadable")] == [True, None, None]


def test_each_byte_is_read_once(root, monkeypatch):
    """Not hashed once, loaded once more, and hashed again."""
    read, real = [], chunk_reader.ChunkReader._fetch
    monkeypatch.setattr(
        chunk_reader.ChunkReader,
        "_fetch",
        lambda self, read_, *rest: (read.append((read_.file, read_.chunk)), real(self, read_, *rest))[1],
    )

    assert verify(root, 2).ok

    assert len(read) == len(set(read)) > 0


def test_verdicts_are_kept_in_the_catalog_with_all_their_answers(database_url, root):
    flip(data_file(root, 2))
    with catalog_of(database_url, root) as database:
        report = CheckpointVerifier(database).verify_experiment_checkpoints("r1")

        health = {one.id: one.health for one in database.get_checkpoints_by_experiment("r1")}
        kept = CheckpointVerdict.of(database.integrity("c2")[0])

    assert health == {"c1": "healthy", "c2": "damaged", "c3": "healthy"}
    assert dict(report.counts) == {"healthy": 2, "damaged": 1}
    assert (report.ok, report.complete) == (False, True)
    assert answers(kept) == {"record": True, "files": True, "size": True, "digest": False, "loadable": None}
    assert (kept.outcome, kept.problems) == (CheckpointHealth.DAMAGED, report.verdicts[1].problems)


def test_an_unknown_or_deleted_checkpoint_is_refused(tmp_path, root):
    with catalog_of(tmp_path, root) as database:
        database.delete_checkpoint("c1")
        for name, why in (("nothing", "knows no such checkpoint"), ("c1", "knows it as deleted")):
            with pytest.raises(WrongReference, match=why):
                CheckpointVerifier(database).verify_checkpoint(name)
        assert [one.checkpoint_id for one in CheckpointVerifier(database).verify_all_checkpoints().verdicts] == [
            "c2",
            "c3",
        ]


def test_a_damaged_checkpoint_is_mended_bit_exactly_and_verified_again(tmp_path):
    root = tmp_path / "run"
    save(root, 1, 2, parity="pq")
    mc.finish_saves()
    before = data_file(root, 2).read_bytes()
    flip(data_file(root, 2))

    with catalog_of(tmp_path, root) as database:
        verifier = CheckpointVerifier(database, repair=mc.repair)
        assert verifier.verify_checkpoint("c2").outcome is CheckpointHealth.DAMAGED
        mended = verifier.verify_checkpoint("c2", repair=True)
        health = database.get_checkpoint("c2").health

    assert (mended.outcome, mended.repaired, health) == (CheckpointHealth.HEALTHY, True, "healthy")
    assert data_file(root, 2).read_bytes() == before
    assert CheckpointVerifier.of_root(root, repair=mc.repair).verify_checkpoint("step-00000001", repair=True).ok


def test_what_cannot_be_mended_stays_damaged_and_is_told(root, caplog):
    flip(data_file(root, 2))
    before = {path: path.read_bytes() for path in folder(root, 2).iterdir()}

    verdict = CheckpointVerifier.of_root(root, repair=mc.repair).verify_checkpoint("step-00000002", repair=True)

    assert (verdict.outcome, verdict.repaired) == (CheckpointHealth.DAMAGED, False)
    assert {path: path.read_bytes() for path in folder(root, 2).iterdir()} == before


def test_a_repair_that_fails_leaves_the_damage_as_the_finding(root, caplog):
    flip(data_file(root, 2))

    def fail(where, name):
        raise ConnectionError(f"no second store for {name}")

    verdict = CheckpointVerifier.of_root(root, repair=fail).verify_checkpoint("step-00000002", repair=True)

    assert (verdict.outcome, verdict.repaired) == (CheckpointHealth.DAMAGED, False)
    assert "could not be repaired: no second store for step-00000002" in caplog.text


def test_a_store_that_does_not_answer_is_unreadable_and_not_damaged(tmp_path, root, monkeypatch):
    for name, value in {"ENDPOINT_URL": "http://127.0.0.1:9", "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "y"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with catalog_of(tmp_path, root) as database:
        database.update_checkpoint("c2", root="s3://no-such-bucket-here/run")
        verdict = CheckpointVerifier(database).verify_checkpoint("c2")

    assert verdict.outcome is CheckpointHealth.UNREADABLE


def test_a_repair_that_puts_another_checkpoint_in_its_place_is_refused(root):
    flip(data_file(root, 2))

    def substitute(where, name):
        shutil.rmtree(folder(root, 2))
        shutil.copytree(folder(root, 3), folder(root, 2))

    with pytest.raises(WrongReference, match="That is another state"):
        CheckpointVerifier.of_root(root, repair=substitute).verify_checkpoint("step-00000002", repair=True)


def test_repair_without_anybody_who_can_is_refused_before_a_byte_is_read(root):
    with pytest.raises(OptionInvalid, match="was given no repair="):
        CheckpointVerifier.of_root(root).scrub(repair=True)


def test_hooks_hear_of_every_check_and_of_every_failure(root):
    flip(data_file(root, 2))
    heard, hooks = [], HookManager()
    hooks.register_hook(
        "ear",
        lambda context: heard.append(
            (context.event.value, context.get("verdict") and str(context.get("verdict").outcome))
        ),
        events=["before_integrity_check", "after_integrity_check", "on_integrity_failure"],
    )

    CheckpointVerifier.of_root(root, emit=hooks.fire_hook).verify_checkpoint("step-00000002")

    assert heard == [
        ("before_integrity_check", None),
        ("on_integrity_failure", "damaged"),
        ("after_integrity_check", "damaged"),
    ]


def test_a_hook_may_forbid_a_check_which_is_then_no_verdict(tmp_path, root):
    hooks = HookManager()
    hooks.register_hook("no", lambda context: context.checkpoint_id != "c2", events=["before_integrity_check"])

    with catalog_of(tmp_path, root) as database:
        report = CheckpointVerifier(database, emit=hooks.fire_hook).scrub()
        health = {one.id: one.health for one in database.get_checkpoints_by_experiment("r1")}

    assert dict(report.counts) == {"healthy": 2, "unchecked": 1}
    assert health == {"c1": "healthy", "c2": "unknown", "c3": "healthy"}


def test_a_backup_is_the_same_checkpoint_elsewhere_and_mends_the_first(tmp_path, root):
    verifier = CheckpointVerifier.of_root(root)
    where = verifier.create_checkpoint_backup("step-00000002", tmp_path / "second")

    assert where == str(folder(tmp_path / "second", 2))
    assert mc.load(tmp_path / "second")["epoch"] == 2
    before = data_file(root, 2).read_bytes()
    flip(data_file(root, 2))
    with pytest.raises(CorruptedCheckpoint, match="does not have the recorded digest"):
        verifier.create_checkpoint_backup("step-00000002", tmp_path / "third")
    assert mc.repair(root, "step-00000002", source=tmp_path / "second").ok
    assert data_file(root, 2).read_bytes() == before
    assert not (tmp_path / "third" / "checkpoints").exists() or not mc.list_checkpoints(tmp_path / "third")


def test_lost_parity_is_no_damage_but_is_told_and_mended(tmp_path, caplog):
    root = tmp_path / "run"
    save(root, 1, parity="xor")
    mc.finish_saves()
    parity = [path for path in folder(root, 1).iterdir() if "parity" in path.name]
    parity[0].unlink()

    verifier = CheckpointVerifier.of_root(root, repair=mc.repair)
    verdict = verifier.verify_checkpoint("step-00000001")
    mended = verifier.verify_checkpoint("step-00000001", repair=True)

    assert (verdict.ok, bool(verdict.parity), verdict.problems) == (True, True, ())
    assert "is less protected than it was meant to be" in caplog.text
    assert (mended.ok, mended.repaired, mended.parity) == (True, True, ())
    assert parity[0].exists()
