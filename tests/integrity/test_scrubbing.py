"""Scrubbing goes on where it stopped, however it stopped, and looks first at what was looked at longest ago."""

import os

import pytest
from tests.integrity.verified_runs import catalog_of, save

import model_checkpoint as mc
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.integrity import CheckpointVerifier
from model_checkpoint.testing.crash import run_in_child


def test_a_scrub_cut_short_goes_on_where_it_stopped_also_after_a_kill(database_url, root):
    with catalog_of(database_url, root) as database:
        ticks = iter(range(0, 10_000, 10))
        first = CheckpointVerifier(database, clock=lambda: next(ticks)).scrub(seconds=15)
        assert not first.complete

        def killed(_):
            emitted = []

            def die_in_the_third_check(event, **_):
                emitted.append(event)
                if emitted.count("before_integrity_check") == 2:
                    os._exit(137)

            CheckpointVerifier(database, emit=die_in_the_third_check).scrub()

        run_in_child(killed)
        rest = CheckpointVerifier(database).scrub()

    assert [one.checkpoint_id for one in first.verdicts] == ["c1"]
    assert [one.checkpoint_id for one in rest.verdicts] == ["c3", "c1", "c2"]  # longest unverified first
    assert rest.complete


def test_a_plain_root_remembers_by_itself_what_was_verified(root):
    ticks = iter(range(0, 10_000, 10))
    slow = CheckpointVerifier.of_root(root, clock=lambda: next(ticks))

    first = slow.scrub(seconds=15)
    second = CheckpointVerifier.of_root(root).scrub(seconds=1e9)

    assert [os.path.basename(one.path)[-1] for one in first.verdicts] == ["3"]  # never verified: newest first
    assert [os.path.basename(one.path)[-1] for one in second.verdicts] == ["2", "1", "3"]
    assert [info.step for info in mc.list_checkpoints(root)] == [3, 2, 1]


def test_a_checkpoint_that_was_replaced_counts_as_never_verified(root):
    CheckpointVerifier.of_root(root).scrub()
    save(root, 2, overwrite=True)
    mc.delete(root, step=3)

    verdicts = CheckpointVerifier.of_root(root).scrub().verdicts

    assert [os.path.basename(one.path)[-1] for one in verdicts] == ["2", "1"]
    assert len((root / ".verified.jsonl").read_text().splitlines()) >= 5


def test_a_root_without_memory_is_verified_whole_too(monkeypatch):
    monkeypatch.setattr("model_checkpoint.integrity.verifier._PAGE", 2)
    save("memory://verify-many", *range(1, 8))

    report = CheckpointVerifier.of_root("memory://verify-many").scrub()

    assert len({one.checkpoint_id for one in report.verdicts}) == len(report.verdicts) == 7


@pytest.mark.parametrize("sample", [0.3, 0.7])
def test_a_sample_is_drawn_at_random_and_its_share_is_kept(sample, monkeypatch):
    monkeypatch.setattr("model_checkpoint.integrity.verifier._PAGE", 4)
    url = f"memory://sample-{int(10 * sample)}"
    for step in range(40):
        mc.save(url, {"a": step}, step=step)
    verifier = CheckpointVerifier.of_root(url)

    drawn = [{one.checkpoint_id for one in verifier.scrub(sample=sample, seed=seed).verdicts} for seed in range(5)]

    assert len({frozenset(one) for one in drawn}) == 5
    assert all(abs(len(one) - 40 * sample) < 14 for one in drawn)
    assert not verifier.scrub(sample=sample, seed=1).complete


def test_a_checkpoint_that_would_not_fit_the_time_left_is_not_begun(tmp_path, root):
    """By the speed of those before it."""
    with catalog_of(tmp_path, root) as database:
        database.update_checkpoint("c2", file_size=10**12)
        report = CheckpointVerifier(database).scrub(seconds=60)

    assert [one.checkpoint_id for one in report.verdicts] == ["c1"]
    assert not report.complete


@pytest.mark.parametrize("wrong", [{"seconds": 0}, {"sample": 0}, {"sample": 1.5}])
def test_a_share_or_a_time_that_is_none_is_refused(root, wrong):
    with pytest.raises(OptionInvalid, match=f"scrub: {next(iter(wrong))} is"):
        CheckpointVerifier.of_root(root).scrub(**wrong)


def test_a_root_that_cannot_be_written_to_is_verified_all_the_same(root, caplog):
    (root / ".verified.jsonl").mkdir()

    report = CheckpointVerifier.of_root(root).scrub()

    assert (len(report.verdicts), report.ok) == (3, True)
    assert "what was verified cannot be remembered" in caplog.text
    assert "it is not known what was verified before" in caplog.text


def test_a_root_in_memory_remembers_in_a_file_of_its_own(tmp_path):
    save("memory://with-memory", 1, 2)
    ticks = iter(range(0, 10_000, 10))
    first = CheckpointVerifier.of_root("memory://with-memory", memory=tmp_path / "seen", clock=lambda: next(ticks))

    assert len(first.scrub(seconds=15).verdicts) == 1
    rest = CheckpointVerifier.of_root("memory://with-memory", memory=tmp_path / "seen").scrub().verdicts
    assert [verdict.path[-1] for verdict in rest] == ["1", "2"]
    assert len(first.verify_experiment_checkpoints("memory://with-memory").verdicts) == 2
    assert first.verify_experiment_checkpoints("another").verdicts == []
