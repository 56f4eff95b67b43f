"""Served: a server in the process of the test, behind its gate, and a client that has the token."""

from __future__ import annotations

import time

from starlette.testclient import TestClient

from model_checkpoint.api.application import make_app
from model_checkpoint.api.gate.admission import Admission
from model_checkpoint.api.library.shelves import Library

TOKEN = "a-token-for-tests"


class Server(TestClient):
    """A server in this process, and the library it serves."""

    def __init__(self, library: Library, *, token: str = TOKEN, given: str | None = TOKEN) -> None:
        self.library = library
        app = make_app(library, Admission(hosts=frozenset({"testserver"}), token=token))
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {given}"} if given else {})
        super().__init__(app, headers=headers, raise_server_exceptions=False)

    def job(self, job_id: str) -> dict:
        """A job, once it is over."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            job = self.get(f"/api/jobs/{job_id}").json()
            if job["state"] not in ("queued", "running"):
                return job
            time.sleep(0.01)
        raise TimeoutError(job_id)

    def ready(self, address: str) -> dict:
        """A document that a job makes, once it is made."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            document = self.get(address).json()
            if document["state"] != "computing":
                return document
            time.sleep(0.01)
        raise TimeoutError(address)
