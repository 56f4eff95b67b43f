"""The calls of a storage: which are made again, and how their failures are told."""

import pytest
from tests.distributed.api.own_parts import OwnHandler, OwnStorage

from model_checkpoint.distributed.storing.keyed_store import KeyedStore
from model_checkpoint.errors import (
    StepExists,
    StorageFailure,
)

DAY = 24 * 3600.0


class Flaky(OwnStorage):
    """Fails the first call of each kind."""

    def __init__(self, error):
        super().__init__()
        self.error, self.failed = error, set()

    def _once(self, name):
        if name not in self.failed:
            self.failed.add(name)
            raise self.error


for _name in ("write", "create", "read", "exists", "delete", "list", "get_metadata"):

    def _call(self, *arguments, name=_name):
        self._once(name)
        return getattr(OwnStorage, name)(self, *arguments)

    setattr(Flaky, _name, _call)

CALLS = {
    "write": lambda calls: calls.write("a", b"x"),
    "read": lambda calls: calls.read("a"),
    "exists": lambda calls: calls.exists("a"),
    "delete": lambda calls: calls.delete("b"),
    "list": lambda calls: calls.list("a"),
    "get_metadata": lambda calls: calls.look("a").size,
}
ANSWERS = {"write": None, "read": b"x", "exists": True, "delete": None, "list": ["a"], "get_metadata": 1}
WORDS = {
    "write": "could not be written",
    "create": "could not be created",
    "read": "could not be read",
    "exists": "could not be looked at",
    "delete": "could not be removed",
    "list": "could not be listed",
    "get_metadata": "could not be looked at",
}


def test_every_call_but_to_create_is_made_again():
    storage, handler = Flaky(ConnectionError("a moment")), OwnHandler()
    calls = KeyedStore(storage, handler)._calls

    assert {name: call(calls) for name, call in CALLS.items()} == ANSWERS
    assert handler.retried == len(CALLS)
    with pytest.raises(StorageFailure, match="b: could not be created"):
        calls.create("b", b"x")
    assert handler.retried == len(CALLS)
    assert [calls.create("b", b"x"), calls.create("b", b"y")] == [True, False]


@pytest.mark.parametrize("name", [*CALLS, "create"])
def test_a_failure_is_told_with_where_and_what(name):
    call = CALLS.get(name, lambda calls: calls.create("b", b"x"))
    calls = KeyedStore(Flaky(OSError(5, "I/O error")))._calls

    with pytest.raises(StorageFailure, match=rf"^storage://Flaky-.*/\w: {WORDS[name]}") as told:
        call(calls)
    assert isinstance(told.value.__cause__, OSError)


def test_what_is_missing_or_told_already_is_raised_as_it_is():
    for error in (FileNotFoundError(2, "gone"), StepExists("told already")):
        with pytest.raises(type(error), match=r"gone|told already") as told:
            KeyedStore(Flaky(error))._calls.read("a")
        assert told.value is error
