"""Verification and repair as jobs: with progress, an address for every damage, and an end."""

import threading

import pytest

from model_checkpoint.api.errors import JobCancelled, NotFoundHere, TooManyAtOnce
from model_checkpoint.api.jobs.job_runner import MOST_WAITING, JobRunner


def test_damage_is_found_with_its_address_and_mended(server, made):
    id = made.real_checkpoints[1]

    job = server.job(server.post(f"/api/checkpoints/{id}/verify").json()["id"])
    assert (job["state"], job["result"]["outcome"]) == ("done", "damaged")
    assert job["done"] == job["total"] > 0

    (damage,) = server.get(f"/api/checkpoints/{id}").json()["damage"]
    assert damage["file"].endswith(".safetensors")
    assert (damage["chunk"], damage["from"]) == (1, 4096)
    assert damage["to"] > damage["from"]
    assert len(damage["expected"]) == 64
    assert damage["tensor"] == "model.layer0.weight"
    assert damage["source"] == "parity"

    mended = server.job(server.post(f"/api/checkpoints/{id}/repair").json()["id"])
    assert (mended["state"], mended["result"]["outcome"], mended["result"]["lost"]) == ("done", "healthy", [])
    assert server.get(f"/api/checkpoints/{id}").json()["health"] == "healthy"


def test_a_scrub_comes_round_to_everything_and_its_ages_follow(server, made):
    job = server.job(server.post("/api/integrity/scrub", json={"run": made.real}).json()["id"])
    told = server.get("/api/integrity").json()

    assert job["result"] == {"outcomes": {"healthy": 3, "damaged": 1}, "complete": True}
    assert told["ages"]["damaged"] == 2
    assert sum(told["ages"].values()) == made.checkpoints
    assert told["scrub"] is None
    assert {event["checkpoint"] for event in told["events"]} == set(made.real_checkpoints)
    assert {damage["checkpoint"] for damage in told["damage"]} == {made.real_checkpoints[1], "ckpt-0005-0003"}


def test_a_checkpoint_whose_folder_is_gone_is_missing_not_damaged(server):
    job = server.job(server.post("/api/checkpoints/ckpt-0003-0001/verify").json()["id"])

    assert job["result"]["outcome"] == "missing"


def test_a_job_that_is_stopped_ends_at_its_next_step():
    runner, begun, go = JobRunner(), threading.Event(), threading.Event()

    def work(job):
        begun.set()
        go.wait(10)
        job.advance(1)
        raise AssertionError("went on")

    job = runner.start("count", "x", "counting", work)
    begun.wait(10)
    runner.stop(job.id)
    go.set()

    assert runner.wait(job.id, 10).state == "cancelled"
    runner.close()


def test_the_same_work_is_not_begun_twice_and_the_queue_is_short():
    runner, go = JobRunner(), threading.Event()
    first = runner.start("count", "0", "counting", lambda job: go.wait(10) and None)

    assert runner.start("count", "0", "counting", lambda job: None) is first
    for number in range(1, MOST_WAITING):
        runner.start("count", str(number), "counting", lambda job: go.wait(10) and None)
    with pytest.raises(TooManyAtOnce, match="16 jobs"):
        runner.start("count", "one more", "counting", lambda job: None)
    go.set()
    runner.close()


def test_a_job_that_fails_says_why_and_an_unknown_one_is_none():
    runner = JobRunner()

    def work(job):
        raise NotFoundHere("no such thing")

    failed = runner.wait(runner.start("count", "x", "counting", work).id, 10)

    assert (failed.state, failed.error) == ("failed", "no such thing")
    with pytest.raises(NotFoundHere, match="none of that id"):
        runner.get("nothing")
    runner.close()


def test_a_verification_can_be_stopped_in_the_middle(server, made, monkeypatch):
    """Progress is where a job hears that it is to stop."""
    from model_checkpoint.api.jobs import job_runner

    def stopped(job, nbytes, now=""):
        raise JobCancelled("stopped")

    monkeypatch.setattr(job_runner.ServerJob, "advance", stopped)
    job = server.job(server.post(f"/api/checkpoints/{made.real_checkpoints[0]}/verify").json()["id"])

    assert job["state"] == "cancelled"
    assert server.get(f"/api/checkpoints/{made.real_checkpoints[0]}").json()["verified_at"] is None


def test_jobs_are_listed_and_cancelled_by_id(server, made):
    job = server.post(f"/api/checkpoints/{made.real_checkpoints[0]}/verify").json()
    server.job(job["id"])

    assert [one["id"] for one in server.get("/api/jobs").json()["rows"]] == [job["id"]]
    assert server.post(f"/api/jobs/{job['id']}/cancel").json()["state"] == "done"
    assert server.post("/api/jobs/nothing/cancel").status_code == 404
