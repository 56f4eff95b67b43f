"""What a coordinator asks of the store of a process group: how often, on which line, and what it makes of trouble.

The group is a real one of a single rank, whose store hands on to another, and hangs or fails when it is told to.
"""

import threading
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

from model_checkpoint.distributed import TorchCoordinator
from model_checkpoint.distributed.coordinators.bounded import NoAnswer
from model_checkpoint.errors import OptionInvalid

SOON = 30.0  # seconds that nothing here takes
PAST = 0.0  # a moment that is over: look once


class Telephone(dist.Store):
    """Keeps what it was asked; asks a store in memory, unless the line is dead or nobody answers there."""

    def __init__(self):
        super().__init__()
        self.inner, self.asked = dist.HashStore(), []
        self.silent = lambda key: False
        self.dead, self.go_on = False, threading.Event()

    def _ask(self, what, key):
        self.asked.append((what, key.rpartition("model_checkpoint/")[2]))
        if self.silent(key):
            self.go_on.wait(SOON)
        if self.dead:
            raise RuntimeError("the line is dead")

    def count(self, what):
        return len([one for one, _ in self.asked if one == what])

    def set(self, key, value):
        self._ask("set", key)
        self.inner.set(key, value)

    def get(self, key):
        return self.inner.get(key)

    def add(self, key, amount):
        self._ask("add", key)
        return self.inner.add(key, amount)

    def check(self, keys):
        self._ask("check", keys[0] if keys else "")
        return self.inner.check(keys)

    def multi_get(self, keys):
        self._ask("multi_get", keys[0])
        return self.inner.multi_get(keys)

    def deleteKey(self, key):  # what torch asks a store in Python for
        self._ask("delete", key)
        return self.inner.delete_key(key)

    def wait(self, *arguments):
        self.inner.wait(*arguments)


@pytest.fixture
def join():
    """Makes this process the only rank of a group on a store; call it again for a group anew."""

    def joined(store):
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        return store

    yield joined
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture
def phone(join):
    made = join(Telephone())
    yield made
    made.go_on.set()


def soon():
    return time.monotonic() + SOON


def test_without_a_group_it_says_which_call_is_missing(join, monkeypatch):
    with pytest.raises(OptionInvalid, match="TorchCoordinator: there is no process group"):
        TorchCoordinator()

    join(dist.HashStore())
    monkeypatch.setattr(dist, "is_available", lambda: False)  # torch may be built without
    with pytest.raises(OptionInvalid, match="there is no process group"):
        TorchCoordinator()


def test_a_process_outside_of_the_group_is_told_to_save_elsewhere(phone):
    with pytest.raises(OptionInvalid, match="this process is not of that group"):
        TorchCoordinator(dist.GroupMember.NON_GROUP_MEMBER)


def test_it_is_the_rank_of_the_group_it_was_given(phone):
    other = dist.new_group([0])

    whole, part = TorchCoordinator(patience=3.0), TorchCoordinator(other)

    assert (whole.rank, whole.world_size, whole.patience, whole.program_ranks) == (0, 1, 3.0, [0])
    assert (whole.scope, part.scope) == (dist.group.WORLD, other)
    assert TorchCoordinator().scope is whole.scope
    whole.put("save-1/vote/0", b"of all")
    assert part.collect(["save-1/vote/0"], PAST) == {}
    assert TorchCoordinator().collect(["save-1/vote/0"], PAST) == {"save-1/vote/0": b"of all"}


@pytest.mark.parametrize(
    ("patience", "word", "look"), [(2.0, 1.0, 0.25), (8.0, 4.0, 1.0), (10.0, 5.0, 1.25), (600.0, 5.0, 5.0)]
)
def test_a_word_said_twice_and_eight_looks_fit_into_the_patience(phone, patience, word, look):
    made = TorchCoordinator(patience=patience)

    assert (made._seconds, made._look_seconds) == (word, look)


def test_a_store_of_ones_own_keeps_the_timeout_that_the_program_gave_it(join):
    for store in (dist.HashStore(), Telephone(), dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)):
        store.set_timeout(timedelta(seconds=77))
        join(store)
        TorchCoordinator().put("save-1/vote/0", b"")
        assert store.timeout == timedelta(seconds=77)


def test_a_connection_of_our_own_gives_up_as_early_as_we_do(join):
    join(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))

    lines = TorchCoordinator()._post._lines

    assert {name: line._store.timeout for name, line in lines.items()} == {
        "talk": timedelta(seconds=5),
        "beat": timedelta(seconds=5),
    }


def test_it_is_connected_before_the_first_word(phone):
    TorchCoordinator()

    assert [what for what in phone.asked if what[0] == "add"] == [("add", "born/0")]
    phone.asked.clear()
    TorchCoordinator().put("save-1/vote/0", b"a word")
    assert phone.asked == [("set", "1/save-1/vote/0")]


def test_a_group_made_anew_does_not_find_words_of_the_one_before(join, phone):
    TorchCoordinator().put("save-1/vote/0", b"long ago")

    join(phone)

    assert TorchCoordinator().collect(["save-1/vote/0"], PAST) == {}


def test_words_are_there_for_who_asks_for_some_all_or_none(phone):
    ranks = TorchCoordinator()
    ranks.put("save-1/vote/0", b"a")
    ranks.put("save-1/made/0", b"")

    assert ranks.collect([], soon()) == {}
    assert ranks.collect(["save-1/vote/0"], soon()) == {"save-1/vote/0": b"a"}
    assert ranks.collect(["save-1/vote/0", "save-1/made/0"], soon()) == {"save-1/vote/0": b"a", "save-1/made/0": b""}
    assert ranks.collect(["save-1/vote/1", "save-1/vote/0"], PAST) == {"save-1/vote/0": b"a"}
    assert ranks.collect(["save-1/vote/1", "save-1/vote/0", "save-1/made/0"], PAST).keys() == {
        "save-1/vote/0",
        "save-1/made/0",
    }


def test_a_word_that_is_missing_is_asked_for_once_a_look(phone):
    ranks = TorchCoordinator()
    phone.asked.clear()

    assert ranks.collect(["save-1/vote/1"], PAST) == {}
    assert phone.asked == [("check", "1/save-1/vote/1")]


def test_what_comes_later_is_waited_for_and_all_is_fetched_at_once(phone):
    ranks, keys = TorchCoordinator(), ["save-1/vote/0", "save-1/vote/1"]
    ranks.put(keys[0], b"at once")
    later = threading.Timer(0.05, lambda: ranks.put(keys[1], b"later"))
    later.start()

    assert ranks.collect(keys, soon()) == {keys[0]: b"at once", keys[1]: b"later"}
    later.join()
    assert phone.count("multi_get") == 1


def test_of_many_missing_words_only_the_first_is_asked_for_until_the_last_look(phone):
    ranks, keys = TorchCoordinator(), [f"save-1/vote/{rank}" for rank in range(1, 9)]
    ranks.put(keys[-1], b"long since")
    phone.asked.clear()

    assert ranks.collect(keys, time.monotonic() + 0.05) == {keys[-1]: b"long since"}

    checks = [key for what, key in phone.asked if what == "check"]
    assert checks.count(f"1/{keys[0]}") == len(checks) - 7 > 2
    assert [checks.count(f"1/{key}") for key in keys[1:]] == [1] * 7


def test_words_that_are_all_there_take_three_round_trips_however_many_they_are(phone):
    ranks, keys = TorchCoordinator(), [f"save-1/vote/{rank}" for rank in range(64)]
    for key in keys:
        ranks.put(key, b"there")
    phone.asked.clear()

    assert ranks.collect(keys, soon()).keys() == set(keys)
    assert [what for what, _ in phone.asked] == ["check", "check", "multi_get"]


def test_who_waits_for_a_word_lets_others_speak_meanwhile(phone):
    ranks, heard = TorchCoordinator(patience=SOON), []
    waiting = threading.Thread(target=lambda: heard.append(ranks.collect(["save-1/vote/0"], soon())))
    waiting.start()

    for number in range(3):
        ranks.put(f"load-{number}/mine/0", b"another call")
    assert TorchCoordinator().collect(["load-2/mine/0"], soon()) == {"load-2/mine/0": b"another call"}
    assert (waiting.is_alive(), phone.count("set")) == (True, 3 + 1)  # and the group's own

    ranks.put("save-1/vote/0", b"at last")
    waiting.join(SOON)
    assert heard == [{"save-1/vote/0": b"at last"}]


def test_words_of_the_ninth_last_call_are_gone_from_the_store(phone):
    ranks, keys = TorchCoordinator(), [f"save-{number}/vote/0" for number in range(1, 10)]

    for key in keys:
        ranks.put(key, b"a word")

    assert phone.count("delete") == 1
    assert ranks.collect(keys, PAST).keys() == set(keys[1:])


def test_a_word_that_nobody_takes_is_said_once_more_on_another_connection(phone):
    ranks = TorchCoordinator(patience=0.2)
    ranks.put("save-1/vote/0", b"before")
    phone.silent = lambda key: "made" in key

    ranks.put("save-1/made/0", b"lost")

    assert phone.count("set") - 1 == 2 + 1  # and the group's own
    phone.silent = lambda key: False
    phone.go_on.set()
    ranks.put("save-1/done/0", b"after")
    keys = ["save-1/vote/0", "save-1/done/0"]
    assert ranks.collect(keys, soon()) == {keys[0]: b"before", keys[1]: b"after"}
    assert [what for what in phone.asked if what[0] == "add"] == [("add", "born/0")]


def test_a_sign_of_life_does_not_wait_behind_another_word(phone):
    ranks = TorchCoordinator(patience=SOON)
    phone.silent = lambda key: "vote" in key
    waiting = threading.Thread(target=lambda: ranks.put("save-1/vote/0", b"held"))
    waiting.start()

    ranks.put("save-1/beat/0", b"alive")

    assert ranks.collect(["save-1/beat/0"], soon()) == {"save-1/beat/0": b"alive"}
    assert waiting.is_alive()
    phone.go_on.set()
    waiting.join()


def test_a_dead_store_is_told_a_word_once_and_asked_only_now_and_then(phone):
    ranks = TorchCoordinator(patience=1.0)
    phone.dead = True
    phone.asked.clear()

    ranks.put("save-1/vote/0", b"lost")
    until = time.monotonic() + 0.1
    assert ranks.collect(["save-1/vote/0", "save-1/vote/1"], until) == {}

    assert time.monotonic() >= until
    assert phone.asked == [("set", "1/save-1/vote/0"), ("check", "1/save-1/vote/0")]


def test_a_store_that_does_not_answer_is_left_at_the_end_of_a_look(phone):
    ranks = TorchCoordinator(patience=0.4)
    phone.silent = lambda key: True

    assert ranks.collect(["save-1/vote/1"], PAST) == {}
    assert phone.count("check") == 1


def test_what_is_sent_around_has_half_the_patience_and_a_group_of_its_own(phone, monkeypatch):
    made, waits = [], []

    class Sending:
        def wait(self, timeout):
            waits.append(timeout)

    def new_group(*arguments, **options):
        made.append(arguments[:3])
        return "ours"

    monkeypatch.setattr(dist, "new_group", new_group)
    monkeypatch.setattr(dist, "broadcast", lambda tensor, rank, group, async_op: Sending())
    assert TorchCoordinator().exchange is None
    exchange = TorchCoordinator(patience=3.0, exchange=True).exchange

    exchange([memoryview(bytearray(5))])
    exchange([memoryview(bytearray(5))])
    exchange([memoryview(bytearray())])  # nothing to send

    half = timedelta(seconds=1.5)
    assert made == [([0], half, "gloo")]
    assert waits == [half, half]


def test_a_sending_that_hangs_is_left_at_half_the_patience(phone, monkeypatch):
    monkeypatch.setattr(dist, "broadcast", lambda *arguments, **options: phone.go_on.wait(SOON))

    with pytest.raises(NoAnswer, match=r"^exchange: no answer within 0\.2 s"):
        TorchCoordinator(patience=0.4, exchange=True).exchange([memoryview(bytearray(5))])


def test_one_rank_sends_itself_what_it_has(phone):
    buffer = bytearray(b"what it has")

    TorchCoordinator(patience=SOON, exchange=True).exchange([memoryview(buffer)])

    assert buffer == b"what it has"
