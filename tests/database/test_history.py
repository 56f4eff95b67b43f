"""What was done is kept; what came out of what; what verifications found; what is half deleted."""

import pytest
from sqlalchemy import create_engine, text

from model_checkpoint.database import Checkpoint, Experiment, IntegrityRecord, LineageEdge, RowRefused
from model_checkpoint.database.opening.database_url import read_url
from model_checkpoint.errors import WrongReference


def test_the_audit_log_tells_who_did_what_when_with_what_outcome(db):
    for number in range(5):
        db.record_audit("save", f"c{number}", details={"bytes": number})
    db.record_audit("delete", "c3", outcome="refused: pinned", actor="ann")

    newest = db.audit(limit=1).items[0]
    assert (newest.actor, newest.action, newest.subject, newest.outcome) == ("ann", "delete", "c3", "refused: pinned")
    assert [one.action for one in db.audit(subject="c3").items] == ["delete", "save"]
    first = db.audit(action="save", limit=3)
    rest = db.audit(action="save", limit=3, after=first.next)
    assert [one.subject for one in (*first.items, *rest.items)] == ["c4", "c3", "c2", "c1", "c0"]
    assert "@" in first.items[0].actor
    assert rest.items[-1].details == {"bytes": 0}


@pytest.mark.parametrize("statement", ["UPDATE audit_log SET outcome = 'x'", "DELETE FROM audit_log"])
def test_no_row_of_the_audit_log_can_be_changed_even_by_other_programs(db, database_url, statement):
    db.record_audit("save", "c1")

    engine = create_engine(read_url(database_url))
    with pytest.raises(Exception, match="append-only"), engine.begin() as connection:  # each driver has its own class
        connection.execute(text(statement))
    engine.dispose()

    assert [one.outcome for one in db.audit().items] == ["ok"]


def test_the_history_of_a_run_leads_back_to_the_first(db):
    """r1 -> c1 -> r2 -> c2 -> r3, and a side branch that is no part of it."""
    chain = [("r1", "c1", "saved"), ("c1", "r2", "resumed"), ("r2", "c2", "saved"), ("c2", "r3", "resumed")]
    for number, (parent, child, kind) in enumerate([*chain, ("c1", "r9", "resumed")]):
        db.add_edge(LineageEdge(parent=parent, child=child, kind=kind, step=number * 10, created_at=float(number)))
    db.add_edge(LineageEdge(parent="r1", child="c1", kind="saved", step=5, created_at=0.0))

    assert [(one.parent, one.child, one.kind) for one in db.lineage("r3")] == chain
    assert db.lineage("r3")[0].step == 5
    assert [one.child for one in db.edges("c1")] == ["c1", "r2", "r9"]
    assert len(db.edges()) == 5
    assert db.lineage("r1") == []


def test_a_circle_in_the_lineage_ends(db):
    for parent, child in ("ab", "bc", "ca"):
        db.add_edge(LineageEdge(parent=parent, child=child, kind="derived"))

    assert {(one.parent, one.child) for one in db.lineage("a")} == {("a", "b"), ("b", "c"), ("c", "a")}


def test_what_a_verification_found_is_the_health_of_the_checkpoint(db):
    db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))
    db.record_integrity(IntegrityRecord(checkpoint_id="c1", outcome="healthy", checked_at=100.0, bytes_read=7))
    late = db.record_integrity(
        IntegrityRecord(checkpoint_id="c1", outcome="damaged", checked_at=200.0, details={"a": 1})
    )
    db.record_integrity(late)
    db.record_integrity(IntegrityRecord(checkpoint_id="c1", outcome="healthy", checked_at=150.0))

    assert (db.get_checkpoint("c1").health, db.get_checkpoint("c1").verified_at) == ("damaged", 200.0)
    assert [one.checked_at for one in db.integrity("c1")] == [200.0, 150.0, 100.0]
    assert db.integrity(limit=1)[0] == late
    with pytest.raises(RowRefused, match="refused the row"):
        db.record_integrity(IntegrityRecord(checkpoint_id="nothing", outcome="healthy"))


def test_the_next_to_verify_is_who_waited_longest(db):
    db.save_experiment(Experiment(id="r2", name="other"))
    for id, at in [("a", 300.0), ("b", None), ("c", 100.0), ("d", None)]:
        db.save_checkpoint(Checkpoint(id=id, experiment_id="r2", verified_at=at))
    db.delete_checkpoint("d")

    assert [one.id for one in db.due_for_verification()] == ["b", "c", "a"]
    assert [one.id for one in db.due_for_verification(before=200.0, limit=5)] == ["b", "c"]


def test_a_deletion_that_was_begun_is_found_until_it_is_finished(db):
    first = db.record_intent("c1", plan_id="p1", details={"files": ["a", "b"]})
    second = db.record_intent("c2", "prune")

    done = db.finish_intent(first.id, "deleted")
    again = db.finish_intent(first.id, "failed")

    assert (done.outcome, again) == ("deleted", done)
    assert db.open_intents() == [second]
    assert db.intents("c1")[0].details == {"files": ["a", "b"]}
    with pytest.raises(WrongReference, match="intent 'nothing' is not in the catalog"):
        db.finish_intent("nothing")
