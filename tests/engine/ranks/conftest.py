"""One rank by itself, and a clock that a test moves."""

from types import SimpleNamespace

import pytest
from tests.engine.ranks.timetable import Timetable

from model_checkpoint.engine.ranks import conversation
from model_checkpoint.engine.ranks.conversation import Conversation


@pytest.fixture
def talk(monkeypatch):
    def begin(*moments, **options):
        ranks = Timetable(moments=moments, **options)
        monkeypatch.setattr(conversation, "time", SimpleNamespace(monotonic=lambda: ranks.now))
        return Conversation(ranks, "test"), ranks

    return begin
