"""Ranks that speak at set times, so that one of them can be tried by itself."""

import time

from model_checkpoint.engine.ranks.words import encode_word

PATIENCE = 8.0


class Timetable:
    """A coordinator whose other ranks speak at set times; ``moments`` has (second, word, rank, value)."""

    def __init__(self, rank=0, world_size=2, moments=(), patience=PATIENCE):
        self.rank, self.world_size, self.patience = rank, world_size, patience
        self.now, self.moments, self.said, self.lag = 0.0, list(moments), [], 0.0

    def put(self, key, value):
        self.said.append((*key.split("/")[1:], value))

    def _known(self, keys):
        words = {(word, str(rank)): value for at, word, rank, value in self.moments if at <= self.now}
        return {key: words[tuple(key.split("/")[1:])] for key in keys if tuple(key.split("/")[1:]) in words}

    def collect(self, keys, until):
        if len(self._known(keys)) < len(keys):
            later = [at for at, *_ in self.moments if self.now < at <= until]
            self.now = max(self.now, min([*later, until])) + self.lag
        return self._known(keys)


def word(**fields):
    return encode_word(fields)


def beats_until(ranks, good):
    """The signs of life given until they are ``good``."""
    end = time.monotonic() + 30
    while not good(beats := [value.decode() for topic, _, value in list(ranks.said) if topic == "beat"]):
        assert time.monotonic() < end, beats
        time.sleep(0.001)
    return beats
