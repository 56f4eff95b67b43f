"""Chunks cut small, so that a small state has many."""

import pytest
from tests.engine.repairing.repair_ground import SMALL

import model_checkpoint as mc


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("model_checkpoint.engine.writing.request.LayoutLimits", lambda **_: SMALL)
    yield
    mc.finish_saves()
