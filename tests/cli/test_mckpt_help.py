"""Help, usage, completion and exit codes: what a newcomer and a script meet first."""

import pickle
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

import model_checkpoint as mc
from model_checkpoint.cli import errors as cli_errors
from model_checkpoint.cli.app import app, function_of
from model_checkpoint.cli.exit_codes import ExitCode, code_of
from model_checkpoint.cli.verb_table import ALIASES, VERBS
from model_checkpoint.cli.verbs.verb_arguments import complete_ref

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
COMMAND = typer.main.get_command(app)
ASKED = "ls show cat diff verify repair prune restore export convert pin tag note lineage reindex gc doctor bench serve"


def test_every_verb_that_was_asked_for_is_there():
    assert set(VERBS) >= {*ASKED.split(), "experiments", "metrics", "sql", "adopt", "rm", "trash", "unpin", "forecast"}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_examples_that_are_its_own_and_an_entry_in_the_docs(verb, mckpt):
    shown = mckpt(verb, "--help")

    assert shown.code == 0
    first = function_of(verb).__doc__.partition("\n")[0]
    assert len(first) <= 62  # one line of the overview on a terminal of 80 columns
    assert first.endswith(".")
    assert f"Usage: mckpt {verb}" in shown.out
    for example in VERBS[verb].examples:
        assert f"  {example}\n" in shown.out
        assert example.startswith(f"mckpt {verb} ")
    assert f"`mckpt {verb}" in PAGE


@pytest.mark.parametrize("verb", VERBS)
def test_help_names_what_is_wanted_and_no_type_behind_it(verb, mckpt):
    shown = mckpt(verb, "--help").out
    usage = shown.partition("\n")[0]

    assert not re.search(r"<(str|int|float|list|native)\b|-\S+ (TEXT|INTEGER|FLOAT)\b", shown)
    assert re.fullmatch(rf"Usage: mckpt {verb} \[OPTIONS\]( \[?[A-Z]+(\.\.\.)?\]?)*", usage)


@pytest.mark.parametrize("verb", VERBS)
def test_every_example_is_understood(verb):
    for example in VERBS[verb].examples:
        words = shlex.split(example)[2:]
        context = COMMAND.commands[verb].make_context(verb, words)  # raises what a user would be told
        assert context.params


def test_the_overview_lists_every_verb_on_one_line(mckpt):
    shown = mckpt("--help").out

    for verb in VERBS:
        assert re.search(rf"^  {verb} +\S.*\.$", shown, re.MULTILINE), verb


def test_a_misspelt_verb_is_told_with_the_nearest(mckpt):
    done = mckpt("verfy", "runs/a")

    assert (done.code, "Did you mean 'verify'" in done.err) == (2, True)


def test_an_older_name_still_works(mckpt):
    assert ALIASES == {"undo": "restore"}
    assert "Usage: mckpt" in mckpt("undo", "--help").out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("ls",), 2),
        (("ls", "{root}", "--nonsense"), 2),
        (("prune", "{root}", "--keep", "lasst:3"), 2),
        (("cat", "{root}", "w", "--index", "x"), 2),
        (("rm", "{root}"), 2),
        (("ls", "ftp://host/x"), 2),
        (("ls", "{root}/none"), 3),
        (("show", "{root}@9"), 3),
        (("cat", "{root}", "nothing"), 3),
        (("show", "{root}@best:speed"), 3),
        (("experiments", "{root}"), 3),
        (("sql", "{root}/no.db", "select 1"), 3),
        (("restore", "{root}@1"), 3),
        (("diff", "{root}@1", "{root}@2"), 1),
        (("diff", "{root}@1", "{root}@1"), 0),
        (("export", "{root}", "{root}"), 4),
        (("prune", "{root}", "--keep", "last:1", "--plan", "0000"), 4),
    ],
)
def test_exit_codes_are_those_of_the_page(tmp_path, mckpt, words, code):
    for step in (1, 2):
        mc.save(tmp_path, {"w": np.full(3, step)}, step=step, metrics={"val_loss": 1.0})

    done = mckpt(*(word.format(root=tmp_path) for word in words))

    assert done.code == code, done
    assert f"| {code} |" in PAGE
    assert "Traceback" not in done.err
    assert bool(done.err) == (code > 1)


def test_damage_met_on_the_way_is_code_1(tmp_path, mckpt):
    mc.save(tmp_path, {"w": np.arange(9.0)}, step=1)
    (data,) = (tmp_path / "checkpoints/step-00000001").glob("*.safetensors")
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")

    assert mckpt("cat", tmp_path, "w").code == ExitCode.FOUND
    assert mckpt("verify", tmp_path).code == ExitCode.FOUND
    assert mckpt("show", tmp_path, "--tensors").code == ExitCode.FOUND


def test_a_bug_of_ours_is_no_exit_code():
    with pytest.raises(RuntimeError, match="bug"):
        code_of(RuntimeError("bug"))


@pytest.mark.parametrize("error", [cli_errors.CatalogMissing, cli_errors.QueryRefused, cli_errors.ExtraMissing])
def test_errors_survive_pickling(error):
    assert str(pickle.loads(pickle.dumps(error("runs/a: what, and what to do")))) == "runs/a: what, and what to do"


def test_a_shell_completes_verbs_and_checkpoints(tmp_path):
    for step in (100, 200):
        mc.save(tmp_path, {"a": 1}, step=step)
    mc.save(tmp_path, {"a": 1}, name="best-so-far")

    assert complete_ref(f"{tmp_path}@") == [f"{tmp_path}@best-so-far", f"{tmp_path}@100", f"{tmp_path}@200"]
    assert complete_ref(f"{tmp_path}@1") == [f"{tmp_path}@100"]
    env = {"_MCKPT_COMPLETE": "complete_bash", "COMP_WORDS": "mckpt ver", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "model_checkpoint"],
        capture_output=True,
        text=True,
        check=False,
        env={**__import__("os").environ, **env},
    )
    assert done.stdout.split() == ["verify"]


def test_a_part_that_is_not_installed_is_told_with_the_line_that_installs_it(tmp_path):
    code = (
        "import sys; sys.modules['fastapi'] = None; sys.modules['uvicorn'] = None\n"
        "sys.argv = ['mckpt', 'serve', 'runs', '--no-browser']\n"
        "from model_checkpoint.cli.main import answer; answer()"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert (done.returncode, "pip install 'model-checkpoint[server]'" in done.stderr) == (4, True), done
