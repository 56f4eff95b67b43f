"""`mckpt` in the hands of a newcomer: empty and missing roots, damage, odd names, pipes, JSON for strict readers."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.cli.invoking import invoke
from tests.cli.rendering.terminals import MCKPT, on_terminal

import model_checkpoint as mc
from model_checkpoint.database import EnhancedDatabaseConnection

LONG = "optimizer.state." + "block." * 20 + "weight"


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def root(tmp_path):
    for step in (1, 2):
        state = {LONG: np.full(3, step), "a[0]*": np.array([float("nan"), step]), "same": np.zeros(2)}
        metrics = {"val_loss": float("nan") if step == 1 else 0.5, "acc": float("inf")}
        mc.save(tmp_path / "run", state, step=step, metrics=metrics, metadata={"tags": ["x", None]})
    mc.save(tmp_path / "run", {"a": 1}, name="no-step")
    return tmp_path / "run"


COMMANDS = [
    ("ls", "{}"),
    ("show", "{}@2", "--tensors"),
    ("verify", "{}"),
    ("diff", "{}@1", "{}@2"),
    ("rm", "{}@1"),
    ("undo", "{}@1"),
    ("trash", "{}"),
    ("gc", "{}"),
]


def test_json_is_read_by_strict_readers(root):
    for words in COMMANDS:
        result = invoke(*(word.format(root) for word in words), "--json")
        assert strict(result.stdout) is not None, words
    rows = strict(invoke("ls", root, "--json").stdout)
    assert rows[1]["metrics"] == {"val_loss": "nan", "acc": "inf"}
    assert rows[2]["step"] is None


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_root_that_is_not_there_is_said_and_not_made(tmp_path, words, mckpt):
    result = mckpt(*(word.format(tmp_path / "none") for word in words))

    assert result.code == 3
    assert result.err.startswith(f"error: {tmp_path}/none: no such checkpoint root. Check the path")
    assert result.out == ""
    assert not (tmp_path / "none").exists()


def test_an_empty_folder_is_nothing_to_list_or_verify(tmp_path, mckpt):
    assert "The trash is empty" in invoke("trash", tmp_path).output
    for words in (
        ("ls", tmp_path),
        ("verify", tmp_path),
        ("show", tmp_path),
        ("diff", tmp_path, tmp_path),
        ("rm", f"{tmp_path}@1"),
    ):
        result = mckpt(*words)
        assert result.code == 3, words
        assert "no committed checkpoint" in result.err
    assert not list(tmp_path.iterdir())


def test_names_are_never_cut_where_no_person_looks(root, mckpt):
    diff = mckpt("diff", f"{root}@1", f"{root}@2").out
    tensors = mckpt("show", f"{root}@2", "--tensors").out

    for text in (diff, tensors):
        assert "\u2026" not in text
        assert any(LONG in line and "[3]" in line for line in text.splitlines())
    assert "a[0]*" in diff
    assert "2 changed, 1 unchanged" in diff


@pytest.mark.parametrize("columns", ["40", "60"])
@pytest.mark.parametrize(
    "words", [["show", "{}@2", "--tensors"], ["ls", "{}"], ["verify", "{}"], ["diff", "{}@1", "{}@2"]]
)
def test_on_a_narrow_terminal_everything_is_folded_and_nothing_cut(root, columns, words):
    code, text = on_terminal(columns, *(word.format(root) for word in words))

    assert code == (1 if words[0] == "diff" else 0)
    assert "\u2026" not in text


def test_the_reader_of_a_pipe_may_leave_early(root):
    for words in (("show", root, "--tensors"), ("ls", root, "--json")):
        line = " ".join(map(str, [*MCKPT, *words]))
        done = subprocess.run(["bash", "-c", f"{line} | true"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), words


def test_verify_keeps_the_error_stream_clean_in_scripts(root, mckpt):
    done = mckpt("verify", root)

    assert (done.code, done.err) == (0, "")
    assert done.out.count("healthy") == 3


def test_each_kind_of_damage_is_told_apart(root, mckpt):
    for step in (3, 4):
        mc.save(root, {"w": np.arange(9.0)}, step=step)
    files = {i: next((root / f"checkpoints/step-0000000{i}").glob("*.safetensors")) for i in (2, 3, 4)}
    files[2].unlink()
    files[3].write_bytes(files[3].read_bytes()[:-3])
    files[4].write_bytes(files[4].read_bytes()[:-1] + b"\xff")
    (root / "checkpoints/step-00000001/manifest.json").write_text("garbage")

    result, listed = mckpt("verify", root), mckpt("ls", root)

    assert result.code == 1
    for word in (
        "is gone",
        "has 4165 bytes, the manifest says 4168",
        "which holds tensor w",
        "manifest cannot be used",
    ):
        assert word in result.out, word
    assert listed.code == 0
    assert "unusable" in listed.out
    assert "manifest cannot be used" in listed.err
    assert mckpt("show", f"{root}@1").code == 1
    assert "moved to the trash" in invoke("rm", f"{root}@1").output


def test_a_reference_can_be_a_root_step_name_metric_id_or_folder(root, mckpt):
    newest = mc.list_checkpoints(root)[0]

    for ref in (
        root,
        f"{root}/",
        f"{root}@2",
        f"{root}@latest",
        f"{root}@best:val_loss",
        f"{root}@id:{newest.id[:10]}",
    ):
        assert strict(invoke("show", ref, "--json").stdout)["info"]["step"] == 2, ref
    assert strict(invoke("show", newest.path, "--json").stdout)["info"]["step"] == 2
    assert "step -" in invoke("show", f"{root}@no-step").output
    assert "Did you mean 'val_loss'" in mckpt("show", f"{root}@best:val_los").err
    assert "no step 9; there are 3" in mckpt("show", f"{root}@9").err


def test_undo_never_brings_back_something_else_than_was_asked_for(root, mckpt):
    invoke("rm", f"{root}@1")

    result = mckpt("undo", f"{root}@best:val_loss")

    assert result.code == 2
    assert "by step or name only" in result.err
    assert len(mc.list_checkpoints(root)) == 2
    assert invoke("undo", root).exit_code == 0


def test_a_file_is_no_root(tmp_path, mckpt):
    (tmp_path / "file").write_text("x")

    assert "no such checkpoint root" in mckpt("ls", Path(tmp_path / "file")).err
    assert "unknown scheme 'ftp'" in mckpt("ls", "ftp://host/x").err
    assert "empty path" in mckpt("ls", "").err


def test_what_is_not_there_is_said_as_such_and_not_as_zeros(tmp_path, mckpt):
    """Somebody who gave the wrong folder must not read that all is well."""
    EnhancedDatabaseConnection(f"sqlite:///{tmp_path}/catalog.db").close()
    told = {
        words: mckpt(*(word.format(tmp_path) for word in words))
        for words in (
            ("repair", "{}"),
            ("convert", "{}/nothing", "{}/new"),
            ("prune", "{}", "--keep", "last:1"),
            ("reindex", "{}"),
            ("experiments", "{}"),
            ("experiments", "{}", "--query", "step > 1"),
        )
    }

    assert [one.code for one in told.values()] == [3, 3, 0, 0, 0, 0]
    repair, convert, prune, _, listed, searched = (one.out + one.err for one in told.values())
    assert repair == f"error: {tmp_path}: no committed checkpoint to repair. Check the path, or save there first.\n"
    assert convert == f"error: {tmp_path}/nothing: nothing is there. Check the path. Nothing was done.\n"
    assert prune == f"{tmp_path}: no checkpoint yet, so there is nothing to keep or drop\n"
    assert listed == f"{tmp_path}: no run is recorded there yet.\n"
    assert searched == f"{tmp_path}: no run that fits is recorded there.\n"


@pytest.mark.parametrize(
    ("verb", "options", "told"),
    [
        ("verify", (), "verify"),
        ("repair", (), "repair"),
        ("prune", ("--keep", "last:1"), "prune"),
        ("forecast", (), "forecast"),
        ("gc", ("--dry-run",), "clear up after"),
        ("trash", (), "look for in the trash"),
    ],
)
def test_whoever_names_a_folder_of_runs_is_told_which_there_are(verb, options, told, root, mckpt):
    done = mckpt(verb, root.parent, *options)

    assert done.code == 3
    assert done.err == f"error: {root.parent}: no committed checkpoint to {told}. It holds runs: {root}; name one.\n"


@pytest.mark.parametrize(
    "words",
    [
        ("show", "{}"),
        ("cat", "{}", "w"),
        ("diff", "{}", "{}"),
        ("pin", "{}"),
        ("tag", "{}", "x"),
        ("rm", "{}@1"),
        ("restore", "{}"),
        ("export", "{}", "{}/out"),
        ("convert", "{}", "{}/out"),
        ("reindex", "{}"),
        ("experiments", "{}"),
        ("metrics", "{}"),
        ("lineage", "{}"),
        ("sql", "{}", "--tables"),
    ],
)
def test_whoever_means_a_checkpoint_and_names_a_folder_of_runs_is_told_the_runs(words, root, mckpt):
    done = mckpt(*(word.format(root.parent) for word in words))

    assert done.code == 3
    assert done.err.endswith(f" It holds runs: {root}; name one.\n")
    assert [path.name for path in root.parent.iterdir()] == [root.name]  # nothing was made


def test_a_checkup_of_a_folder_of_runs_names_them(root, mckpt):
    assert f"It holds runs: {root}; name one." in " ".join(mckpt("doctor", root.parent).out.split())


def test_an_empty_folder_is_no_checkpoint_to_convert_and_tells_nothing_of_the_future(tmp_path, mckpt):
    convert, forecast = mckpt("convert", tmp_path, tmp_path / "out"), mckpt("forecast", tmp_path, "--keep", "last:1")

    assert (convert.code, "no committed checkpoint" in convert.err, "already" in convert.err) == (3, True, False)
    assert (forecast.code, forecast.out.count("\n")) == (0, 1)
    assert f"{tmp_path}: no checkpoint yet, so there is nothing to foresee;" in forecast.out


@pytest.mark.parametrize("below", ["", "run", "run/checkpoints", "run/checkpoints/step-00000001"])
def test_checkpoints_of_ours_are_not_adopted_as_those_of_another_library(below, root, tmp_path_factory, mckpt):
    mc.delete(root, step=2)  # what lies in the trash is not either
    out = tmp_path_factory.mktemp("adopted") / "out"

    done = mckpt("adopt", root.parent / below, out)

    assert done.code == 0
    assert "nothing here is a checkpoint that another library wrote" in done.out
    assert ": 0 adopted, 0 present, 0 failed" in done.out
    assert not out.exists()


def test_parts_that_are_not_there_are_told_and_not_shown_as_none(root, mckpt):
    done, plain = mckpt("show", f"{root}@1", "--tensors", "--parts", "modle"), mckpt("show", root, "--parts", "same")

    assert (done.code, "no tensor or part fits modle; its parts are" in done.err) == (3, True)
    assert plain.code == 0


def test_an_index_beyond_a_tensor_is_a_wrong_value_like_one_that_cannot_be_read(root, mckpt):
    codes = [mckpt("cat", f"{root}@1", "same", "--index", index).code for index in ("9", "x", "1")]

    assert codes == [2, 2, 0]
