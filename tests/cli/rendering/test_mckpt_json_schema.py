"""What `--json` prints is what docs/cli.md says, field for field."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import model_checkpoint as mc
from model_checkpoint.cli.verb_table import VERBS
from model_checkpoint.tracking import ExperimentTracker

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
SHAPES = dict(re.findall(r"^(\w+) += (.+)$", re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)[1], re.MULTILINE))
SCALARS = {
    "text": lambda value: isinstance(value, str),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: (
        (isinstance(value, (int, float)) and not isinstance(value, bool)) or value in ("nan", "inf", "-inf")
    ),
    "bool": lambda value: isinstance(value, bool),
    "any": lambda value: True,
}
WITHOUT = {"serve"}


class Shape:
    """A parsed shape, which says of a value why it does not fit; an empty text if it does."""

    def __init__(self, text):
        self.words = re.findall(r"[\w*]+|[^\s\w]", text)

    def misfit(self, value):
        self.rest = list(self.words)
        found = self.either(value)
        assert not self.rest, self.rest
        return found

    def either(self, value):
        reasons = [self.one(value)]
        while self.rest[:1] == ["|"]:
            self.rest.pop(0)
            reasons.append(self.one(value))
        return "" if "" in reasons else "; or ".join(reasons)

    def one(self, value):
        word = self.rest.pop(0)
        if word == "[":
            reason = self.many(value)
        elif word == "{":
            reason = self.fields(value)
        elif word in SCALARS:
            reason = "" if SCALARS[word](value) else f"{value!r} is no {word}"
        else:
            reason = Shape(SHAPES[word]).misfit(value)
        if self.rest[:1] == ["?"]:
            self.rest.pop(0)
            return "" if value is None else reason
        return reason

    def many(self, value):
        start = list(self.rest)
        items = value if isinstance(value, list) and value else [None]
        reasons = []
        for item in items:
            self.rest = list(start)
            reasons.append(self.either(item))
        assert self.rest.pop(0) == "]"
        if not isinstance(value, list):
            return f"{value!r} is no list"
        return next((reason for reason in reasons if reason), "") if value else ""

    def fields(self, value):
        told, reasons = [], []
        while True:
            key = self.rest.pop(0)
            assert self.rest.pop(0) == ":"
            start = list(self.rest)
            there = value if isinstance(value, dict) else {}
            wanted = list(there.values()) if key == "*" else [there[key]] if key in there else []
            for item in wanted or [None]:
                self.rest = list(start)
                reason = self.either(item)
                reasons += [f"{key}: {reason}"] if reason and wanted else []
            told.append(key)
            if self.rest.pop(0) == "}":
                break
        if not isinstance(value, dict):
            return f"{value!r} is no object"
        if told != ["*"] and set(told) != set(value):
            return f"keys differ: {sorted(set(told) ^ set(value))}"
        return "; ".join(reasons)


def test_the_checker_finds_what_is_wrong():
    shape = Shape("[{a: int, b: text?, c: {*: number}}] | text")

    assert shape.misfit([{"a": 1, "b": None, "c": {"x": "nan", "y": 1.5}}]) == ""
    assert shape.misfit("word") == ""
    assert "keys differ: ['d']" in shape.misfit([{"a": 1, "b": None, "c": {}, "d": 1}])
    assert "'x' is no int" in shape.misfit([{"a": "x", "b": None, "c": {}}])
    assert "no number" in shape.misfit([{"a": 1, "b": None, "c": {"x": "word"}}])
    assert "is no list" in shape.misfit(3)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Roots and a catalog that have something of everything."""
    folder = tmp_path_factory.mktemp("world")
    with ExperimentTracker("baseline", database_url=f"sqlite:///{folder}/experiments.db") as tracker:
        for step in range(3):
            tracker.log_metrics({"loss": float("nan") if step else 1.0, "acc": 0.5}, step=step)
    numbers = np.array([1.0, np.nan])
    for step in (1, 2, 3):
        state = {"model": {"w": np.arange(9.0) * step, "odd": numbers}, "epoch": step}
        metrics = {"val_loss": float("inf") if step == 1 else 1 / step}
        mc.save(folder / "runs/a", state, step=step, metrics=metrics, parity="xor", metadata={"tags": ["x", None]})
    for _ in mc.Run(folder / "runs/b", data=[1, 2, 3], weights={"w": np.zeros(2)}):
        pass
    mc.finish_saves()
    (data,) = (folder / "runs/a/checkpoints/step-00000003").glob("*.safetensors")
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")
    mc.save(folder / "runs/c", {"w": np.zeros(3)}, step=1)
    (lost,) = (folder / "runs/c/checkpoints/step-00000001").glob("*.safetensors")
    lost.unlink()
    (folder / "theirs").mkdir()
    torch.save({"net": {"w": torch.ones(2)}, "epoch": 3}, folder / "theirs/step-12.pt")
    (folder / "theirs/torn.pt").write_bytes(b"PK\x03\x04")
    (folder / "theirs/log.txt").write_text("no checkpoint")
    return folder


CALLS = [
    ("ls", "{0}/runs/a"),
    ("ls", "{0}/runs"),
    ("show", "{0}/runs/a@2", "--tensors"),
    ("show", "{0}/runs/b", "--no-values"),
    ("cat", "{0}/runs/a@1", "model.odd"),
    ("cat", "{0}/runs/a@1", "epoch"),
    ("diff", "{0}/runs/a@1", "{0}/runs/a@2"),
    ("verify", "{0}/runs/a"),
    ("repair", "{0}/runs/a", "--dry-run"),
    ("repair", "{0}/runs/c", "--dry-run"),
    ("doctor", "{0}/runs/a"),
    ("bench", "{0}/trial", "--size", "1MiB", "--rounds", "1"),
    ("prune", "{0}/runs/a", "--keep", "last:1", "--dry-run"),
    ("forecast", "{0}/runs/a", "--keep", "last:1"),
    ("pin", "{0}/runs/a@1"),
    ("tag", "{0}/runs/a@1", "paper"),
    ("note", "{0}/runs/a@1", "words"),
    ("unpin", "{0}/runs/a@1"),
    ("rm", "{0}/runs/a@1"),
    ("trash", "{0}/runs/a"),
    ("gc", "{0}/runs/a"),
    ("restore", "{0}/runs/a@1"),
    ("export", "{0}/runs/a@1", "{0}/out.safetensors", "--parts", "model"),
    ("convert", "{0}/theirs/step-12.pt", "{0}/made"),
    ("convert", "{0}/runs/a@2", "{0}/out.pt", "--to", "pt"),
    ("adopt", "{0}/theirs"),
    ("reindex", "{0}/runs/a"),
    ("experiments", "{0}/experiments.db"),
    ("metrics", "{0}/experiments.db"),
    ("metrics", "{0}/experiments.db", "baseline", "loss"),
    ("lineage", "{0}/experiments.db"),
    ("sql", "{0}/experiments.db", "select name, 1.5, null from experiments"),
    ("sql", "{0}/experiments.db", "--tables"),
]


@pytest.mark.parametrize("words", CALLS, ids=lambda words: f"{words[0]}-{CALLS.index(words)}")
def test_the_json_of_a_verb_has_the_documented_shape(words, world, mckpt):
    done = mckpt(*(word.format(world) for word in words), "--json")

    assert (done.err, done.code in (0, 1)) == ("", True)
    value = json.loads(done.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert Shape(SHAPES[words[0]]).misfit(value) == ""
    assert done.out.count("\n") == 1


def test_every_verb_with_json_is_documented_and_called_here():
    assert {words[0] for words in CALLS} == set(VERBS) - WITHOUT
    assert set(SHAPES) >= set(VERBS) - WITHOUT
