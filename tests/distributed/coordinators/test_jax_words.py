"""What a coordinator asks of the coordination service of JAX, which is a real one with two clients in one process."""

import threading
import time

import jax
import pytest
from jax._src import distributed
from jax._src.lib import _jax
from tests.ground.ports import free_port

from model_checkpoint.distributed import JaxCoordinator
from model_checkpoint.errors import OptionInvalid

SOON = 30.0  # seconds that nothing here takes
PAST = 0.0  # a moment that is over: look once


class Line:
    """A client of the service that hangs, or whose host is dead, when it is told to be; it keeps what it was asked."""

    def __init__(self, client):
        self._client, self.asked = client, []
        self.silent, self.dead, self.go_on = lambda key: False, False, threading.Event()

    def __getattr__(self, name):
        call = getattr(self._client, name)

        def ask(key, *arguments, **options):
            self.asked.append((name, key))
            if self.silent(key):
                self.go_on.wait(SOON)
            if self.dead:
                raise RuntimeError("UNAVAILABLE: the host is dead")
            return call(key, *arguments, **options)

        return ask


@pytest.fixture(scope="module")
def clients():
    """Two clients of one service."""
    address = f"127.0.0.1:{free_port()}"
    service = _jax.get_distributed_runtime_service(address, 2)
    made = [_jax.get_distributed_runtime_client(address, rank, init_timeout=60) for rank in range(2)]
    for work in ("connect", "shutdown"):
        threads = [threading.Thread(target=getattr(client, work)) for client in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if work == "connect":
            yield made
    service.shutdown()


@pytest.fixture
def lines(clients):
    made = [Line(client) for client in clients]
    yield made
    for line in made:
        line.go_on.set()
        line.dead = False
    clients[0].key_value_delete("model_checkpoint/")


@pytest.fixture
def become(monkeypatch, lines):
    """Makes the coordinator of one rank or the other, as its own process would."""

    def made(rank, patience=SOON):
        monkeypatch.setattr(distributed.global_state, "client", lines[rank])
        monkeypatch.setattr(jax, "process_index", lambda: rank)
        monkeypatch.setattr(jax, "process_count", lambda: 2)
        return JaxCoordinator(patience=patience)

    return made


def soon():
    return time.monotonic() + SOON


def test_without_other_processes_it_says_which_call_is_missing():
    with pytest.raises(OptionInvalid, match="JAX knows of no other process"):
        JaxCoordinator()


@pytest.mark.parametrize(
    ("patience", "word", "look"), [(2.0, 1.0, 0.25), (8.0, 4.0, 1.0), (10.0, 5.0, 1.25), (600.0, 5.0, 5.0)]
)
def test_a_word_has_half_the_patience_and_a_look_an_eighth(become, patience, word, look):
    made = become(1, patience)

    assert (made.rank, made.world_size, made.patience) == (1, 2, patience)
    assert (made._seconds, made._look_seconds) == (word, look)


def test_each_rank_hears_what_the_other_says(become):
    first, second = become(0), become(1)
    first.put("save-1/made/0", b"from nought")
    second.put("save-1/vote/1", b"from one")
    second.put("save-1/vote/1", b"said again")
    second.put("a/b-1/vote/1", b"")

    assert first.scope is not second.scope
    assert second.collect(["save-1/made/0"], soon()) == {"save-1/made/0": b"from nought"}
    assert first.collect(["save-1/vote/1", "save-1/made/0", "a/b-1/vote/1"], soon()) == {
        "save-1/vote/1": b"said again",
        "save-1/made/0": b"from nought",
        "a/b-1/vote/1": b"",
    }
    assert first.collect(["save-1/vote/0", "save-1/vote/1"], PAST) == {"save-1/vote/1": b"said again"}
    assert first.collect([], soon()) == {}


def test_what_comes_later_is_waited_for_and_what_is_there_not_asked_for_again(become, lines):
    ranks, keys = become(0), ["save-1/vote/0", "save-2/vote/1"]
    ranks.put(keys[0], b"at once")
    later = threading.Timer(0.05, lambda: ranks.put(keys[1], b"later"))
    later.start()

    assert ranks.collect(keys, soon()) == {keys[0]: b"at once", keys[1]: b"later"}
    later.join()
    assert lines[0].asked.count(("key_value_dir_get_bytes", "model_checkpoint/save-1/vote/")) == 1


@pytest.mark.parametrize(("rank", "left"), [(0, range(2, 10)), (1, range(1, 10))])
def test_rank_0_removes_the_words_of_the_ninth_last_call_for_all(become, rank, left):
    keys = [f"count-{number}/vote/{rank}" for number in range(1, 10)]

    for key in keys:
        become(rank).put(key, b"a word")  # all coordinators of one client know of them

    assert become(rank).collect(keys, PAST).keys() == {f"count-{number}/vote/{rank}" for number in left}


def test_a_client_forgets_no_words_that_were_said_by_another_before_it(become):
    keys = [f"lead-{number}/vote/1" for number in range(1, 9)]
    for key in keys:
        become(1).put(key, b"a word")

    become(0).put("lead-9/vote/0", b"the ninth, and the first of this client")

    assert become(0).collect(keys, PAST).keys() == set(keys)


def test_a_sign_of_life_does_not_wait_behind_another_word(become, lines):
    ranks = become(0)
    lines[0].silent = lambda key: "vote" in key
    waiting = threading.Thread(target=lambda: ranks.put("save-1/vote/0", b"held"))
    waiting.start()

    ranks.put("save-1/beat/0", b"alive")

    assert ranks.collect(["save-1/beat/0"], soon()) == {"save-1/beat/0": b"alive"}
    assert waiting.is_alive()
    lines[0].go_on.set()
    waiting.join()


def test_a_dead_service_is_told_a_word_once_and_asked_only_now_and_then(become, lines):
    ranks = become(0)
    lines[0].dead = True

    ranks.put("save-1/vote/0", b"lost")
    until = time.monotonic() + 0.1
    assert ranks.collect(["save-1/vote/0"], until) == {}

    assert time.monotonic() >= until
    assert [name for name, _ in lines[0].asked] == ["key_value_set_bytes", "key_value_dir_get_bytes"]


def test_a_service_that_does_not_answer_is_left_and_asked_anew(become, lines):
    ranks = become(0, patience=0.2)
    lines[0].silent = lambda key: True

    ranks.put("save-1/vote/0", b"late")
    assert ranks.collect(["save-1/vote/0"], PAST) == {}

    lines[0].silent = lambda key: False
    ranks.put("save-1/made/0", b"after")
    assert ranks.collect(["save-1/made/0"], soon()) == {"save-1/made/0": b"after"}
