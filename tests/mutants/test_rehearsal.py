"""A rehearsed room tries a mutant only on the tests that run its lines, and says the same as a run of all of them."""

import textwrap

import pytest
from mutants.code_swap import swap
from mutants.kinds import mutants_of, statement_lines
from mutants.workshop import Fate, Site, Workshop
from tests.mutants.rehearsed_project import SOURCE, made_project


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    root = made_project(tmp_path_factory.mktemp("rehearsed"))
    made = Workshop(root, root.parent / "copy")
    made.rehearse("room", also=["tests/other"])
    yield made
    made.close()


@pytest.mark.slow
def test_a_rehearsed_room_tells_who_lives_also_in_processes_and_at_import(shop):
    path = next((shop.folder / "src").rglob("room/__init__.py")).relative_to(shop.folder)
    fates = {}
    for mutant in mutants_of(SOURCE.encode()):
        fates[f"{mutant.before} -> {mutant.after}"] = shop.try_mutant(Site(path, mutant), "room", seconds=60)

    lived = {change for change, fate in fates.items() if fate is Fate.LIVED}
    assert lived == {
        "value < low -> (value <= low)",  # no test can tell
        "return value == 7 -> return None",
        "value == 7 -> (value != 7)",
        "7 -> 8",
        "7 -> 6",
        'print(len("x")) -> pass',
    }
    assert set(fates.values()) == {Fate.LIVED, Fate.KILLED}
    assert (shop.folder / path).read_text() == SOURCE


def made(code):
    space = {}
    exec(compile(textwrap.dedent(code), "swapped.py", "exec", dont_inherit=True), space)
    return space


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def f():\n    return 1", "def f():\n    return 2"),
        ("class C:\n    @staticmethod\n    def g():\n        return 1\nf = C.g", None),
        ("def make():\n    def g():\n        return 1\n    return g\nf = make()", None),
        ("f = lambda: 1", "f = lambda: 2"),
    ],
)
def test_a_live_function_gets_the_changed_code(before, after):
    space, after = made(before), after or before.replace("return 1", "return 2")

    assert swap("swapped.py", before.encode(), after.encode())
    assert space["f"]() == 2


@pytest.mark.parametrize("before", ["x = 1", "def f(x=1):\n    return x", "class C:\n    x = 1"])
def test_what_an_import_runs_is_not_swapped(before):
    assert not swap("swapped.py", before.encode(), before.replace("1", "2").encode())


def test_the_lines_of_a_mutant_are_those_of_its_statement_or_head():
    source = b"x = [\n    1,\n    a,\n]\nif (\n    a\n    < 2\n):\n    b = a\ng(a)\n"
    spans = {mutant.before: statement_lines(source, mutant) for mutant in mutants_of(source)}

    assert spans == {"1": (1, 4), "a < 2": (5, 8), "2": (5, 8), "g(a)": (10, 10)}
