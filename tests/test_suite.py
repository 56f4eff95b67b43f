"""What ``make test`` does with a test that fails: a second go, a record of it, and no third."""

import pytest

from tests import suite

TESTS = """
from pathlib import Path

def test_steady():
    assert {steady}

def test_now_and_then():
    runs = Path("runs")
    count = int(runs.read_text()) + 1 if runs.exists() else 1
    runs.write_text(str(count))
    assert count not in {failing}
"""
WOBBLY = "test_it.py::test_now_and_then"


@pytest.fixture
def run(tmp_path, capfd):
    """Run a small suite whose second test fails at the given runs; return code, what was printed, and the record."""

    def run(failing, *arguments, recorded="", steady=True):
        (tmp_path / "test_it.py").write_text(TESTS.format(failing=failing, steady=steady))
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        record = tmp_path / "second_go.txt"
        record.write_text(recorded)
        code = suite.main([["-n", "0", *arguments]], record=record, folder=tmp_path)
        return code, capfd.readouterr().out, record.read_text()

    return run


def test_a_suite_that_passes_needs_no_second_go(run):
    code, said, record = run({9})

    assert (code, record) == (0, "")
    assert said.endswith("== needed a second go: 0\n")


@pytest.mark.slow
def test_what_passes_three_times_alone_is_green_named_and_recorded(run):
    code, said, record = run({1})

    assert (code, record) == (0, f"{WOBBLY}\n")
    assert said.endswith(f"== needed a second go: 1\n   {WOBBLY}\n")
    assert "second go, 3 of 3, for 1 tests" in said


def test_a_record_that_cannot_be_kept_is_told_and_turns_nothing_red(tmp_path, capsys):
    suite._keep(tmp_path / "none/second_go.txt", [WOBBLY])

    assert "none/second_go.txt: not kept" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("again", [2, 4])
def test_what_fails_in_any_of_the_three_is_red(run, again):
    code, said, record = run({1, again})

    assert (code, record) == (1, "")
    assert f"== red\n   {WOBBLY}" in said


@pytest.mark.slow
def test_beside_a_red_test_the_others_still_get_their_second_go(run):
    code, said, record = run({1}, steady=False)

    assert (code, record) == (1, f"{WOBBLY}\n")
    assert f"== needed a second go: 1\n   {WOBBLY}\n" in said
    assert "== red\n   test_it.py::test_steady" in said


def test_what_needed_a_second_go_before_gets_none(run):
    code, said, record = run({1}, recorded=f"# why\n{WOBBLY}\n")

    assert (code, record) == (1, f"# why\n{WOBBLY}\n")
    assert f"failed again after an earlier second go: a bug\n   {WOBBLY}" in said
    assert "second go, 1 of 3" not in said


@pytest.mark.slow
def test_a_recorded_test_that_passes_is_green(run):
    assert run({9}, recorded=f"{WOBBLY}\n")[0] == 0


def test_a_run_that_never_came_to_its_tests_is_red(run):
    code, said, _ = run({9}, "--no-such-option")

    assert code == 2
    assert "pytest ended with code 4" in said


def test_every_file_run_apart_exists():
    assert [path for path in suite.FORKING if not (suite.ROOT / path).exists()] == []
