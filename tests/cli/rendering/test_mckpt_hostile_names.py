"""Whatever names say, they are text: nothing in them drives the terminal, hides, or turns a line around."""

import json
import re

import numpy as np
import pytest
from tests.cli.rendering.terminals import on_terminal

import model_checkpoint as mc
from model_checkpoint.database import Experiment, Metric, open_catalog

ESCAPES = [
    "\x1b[31m",
    "\x1b]0;title\x07",
    "\x07",
    "\x9b2J",
    "\x08\x08",
    "\r",
    "\u202e",
    "\u2066",
    "\x00",
    "\x7f",
    "\u200b",
]
NASTY = "n" + "".join(ESCAPES) + "[bold red]x\ny[/]"
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069]")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    nasty = NASTY.replace("\x00", "")  # a tag or name with a NUL is refused before
    for step in (1, 2):
        state = {NASTY: np.zeros(2) + step, "model": {NASTY: np.ones(3)}, NASTY + "plain": step}
        mc.save(folder / "run", state, step=step, metrics={NASTY: 1.0 / step}, metadata={NASTY: NASTY})
    mc.tag(folder / "run", nasty)
    mc.note(folder / "run", nasty)
    with open_catalog(f"sqlite:///{folder}/experiments.db") as db:
        db.save_experiment(Experiment(id="r1", name=nasty, notes=nasty, status="completed", tags=[nasty]))
        db.write_metrics([Metric("r1", nasty, 1.0, 1)])
    return folder


CALLS = [
    ("ls", "{0}/run"),
    ("ls", "{0}"),
    ("show", "{0}/run", "--tensors"),
    ("cat", "{0}/run", "{1}"),
    ("diff", "{0}/run@1", "{0}/run@2"),
    ("verify", "{0}/run"),
    ("prune", "{0}/run", "--keep", "best:`{1}`", "--dry-run"),
    ("tag", "{0}/run", "{2}"),
    ("note", "{0}/run", "{2}"),
    ("experiments", "{0}/experiments.db"),
    ("metrics", "{0}/experiments.db"),
    ("metrics", "{0}/experiments.db", "r1", "{2}"),
    ("lineage", "{0}/experiments.db"),
    ("sql", "{0}/experiments.db", "select name, notes as '{2}' from experiments"),
    ("cat", "{0}/run", "{1}nothing"),
    ("show", "{0}/{2}"),
    ("metrics", "{0}/experiments.db", "{2}none"),
]


@pytest.mark.parametrize("words", CALLS, ids=lambda words: f"{words[0]}-{CALLS.index(words)}")
def test_no_control_character_of_a_name_is_printed(words, world, mckpt):
    done = mckpt(*(word.format(world, NASTY, NASTY.replace("\x00", "")) for word in words))

    assert not HARMFUL.findall(done.out + done.err)
    assert "Traceback" not in done.err


def test_on_a_terminal_the_only_escapes_are_ours(world):
    code, seen = on_terminal(80, "show", f"{world}/run", "--tensors")

    assert code == 0
    ours = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen).replace("\r\n", "\n").replace("\r", "")
    assert not HARMFUL.findall(ours)
    assert "\x1b[31mn" not in seen.replace("\x1b[31mnot finite", "")


def test_json_keeps_names_as_they_are(world, mckpt):
    told = mckpt("ls", world / "run", "--json").out

    assert not HARMFUL.findall(told)
    assert json.loads(told)[0]["metrics"] == {NASTY: 0.5}
