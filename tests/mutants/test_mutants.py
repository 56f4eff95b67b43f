"""The mutator makes every kind of small wrong, runs it in a copy, and tells who lived."""

import pytest
from mutants.__main__ import all_at, draw, main, rooms
from mutants.kinds import mutants_of
from mutants.workshop import nearest_tests
from tests.mutants.rehearsed_project import made_repository

ROOM = '''"""A room."""
import logging


def clip(value, low):
    """Clip."""
    if value < low:
        return low
    return value


def never_tested(value):
    return value == 7
'''
TESTS = """
from model_checkpoint.room import clip

def test_clip(tmp_path):
    assert [clip(value, 5) for value in (4, 5, 6)] == [5, 5, 6]
"""

MOST = """
from model_checkpoint.limits import MOST

def test_most():
    assert MOST == 3
"""


def changes(code):
    source = code.encode()
    return {one.apply(source).decode() for one in mutants_of(source)}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = a < b", {"x = (a <= b)"}),
        ("x = a is None", {"x = (a is not None)"}),
        ("x = a in b", {"x = (a not in b)"}),
        ("x = a and b", {"x = (a)", "x = (b)"}),
        ("x = a or b or c", {"x = (b or c)", "x = (a or c)", "x = (a or b)"}),
        ("x = 3", {"x = 4", "x = 2"}),
        ("x = 0", {"x = 1"}),
        ("x = a if b else c", {"x = a if (not (b)) else c"}),
        ("while a:\n    b = c", {"while (not (a)):\n    b = c"}),
        ("flush(x)", {"pass"}),
        ("if a:\n    raise E('no')", {"if (not (a)):\n    raise E('no')", "if a:\n    pass"}),
        ("def f():\n    return x", {"def f():\n    return None"}),
        ("def f():\n    return False", {"def f():\n    return True"}),
    ],
)
def test_every_kind_of_change_is_made(code, expected):
    assert changes(code) == expected


@pytest.mark.parametrize(
    "code",
    [
        '"""Doc 1 < 2."""',
        "def f(x: Literal[1]) -> Literal[2]: ...",
        "x: Literal[3] = y",
        "x = True",
        "x = f'{a[:3]}'",
        "log.info('%d', 3)",
        "if a < 3:\n    log.info('%d', 3)",
        "if TYPE_CHECKING:\n    flush(x)",
        "def __repr__(self):\n    return a if b < 3 else c",
        "def f():\n    return None",
        "@cache(maxsize=5)\nclass C(B[3], slots=4): ...",
    ],
)
def test_what_no_test_should_pin_down_is_left_alone(code):
    assert changes(code) == set()


def test_a_change_keeps_all_around_it_also_beyond_ascii():
    source = 'a = "\u00e9"; b = (c <\n  d)  # why\ne = f\n'.encode()

    (mutant,) = mutants_of(source)

    assert mutant.apply(source).decode() == 'a = "\u00e9"; b = ((c <= d))  # why\ne = f\n'
    assert (mutant.line, mutant.before) == (1, "c < d")


@pytest.fixture
def project(tmp_path):
    files = {
        "src/model_checkpoint/__init__.py": "",
        "src/model_checkpoint/room/__init__.py": ROOM,
        "src/model_checkpoint/bare/__init__.py": "",
        "src/model_checkpoint/limits.py": "MOST = 3\n",
        "tests/room/test_clip.py": TESTS,
        "tests/room/test_most.py": MOST,
        "pytest.ini": "[pytest]\n",
        ".gitignore": "ignored\n__pycache__/\n",
        "ignored": "",
    }
    return made_repository(tmp_path / "project", files)


def test_the_same_seed_draws_the_same_mutants_and_every_room_gets_its_share(project):
    assert rooms(project) == ["room", "beside"]
    assert draw(project, ["room"], count=3, seed=1) == draw(project, ["room"], count=3, seed=1)
    assert len(draw(project, ["room"], count=3, seed=1)) == 3
    assert len(draw(project, ["room"], count=1000, seed=1)) == len(mutants_of(ROOM.encode()))


def test_all_mutants_of_one_line_are_tried_if_it_is_named(project, capsys):
    room, limits = "src/model_checkpoint/room/__init__.py", "src/model_checkpoint/limits.py"

    found = all_at(project, [f"{room}:7", f"{limits}:1"])

    assert [(of, str(site).partition(": ")[2]) for of, site in found] == [
        ("room", "value < low  ->  (not (value < low))"),
        ("room", "value < low  ->  (value <= low)"),
        ("beside", "3  ->  2"),
        ("beside", "3  ->  4"),
    ]
    main(["--at", f"{room}:7", "--minutes", "0"], root=project)
    assert "2 more were drawn" in capsys.readouterr().out


def test_of_each_room_that_is_named_twenty_are_drawn_unless_another_number_is_asked_for(project, capsys):
    many = "".join(f"def f{i}(a, b):\n    return a < b\n\n\n" for i in range(40))
    (project / "src/model_checkpoint/room/__init__.py").write_text(many)
    (project / "src/model_checkpoint/limits.py").write_text(many)

    main(["room", "beside", "--minutes", "0"], root=project)
    assert "60 more were drawn" in capsys.readouterr().out
    main(["room", "--count", "3", "--minutes", "0"], root=project)
    assert "3 more were drawn" in capsys.readouterr().out


@pytest.mark.slow
def test_a_module_beside_the_rooms_meets_the_tests_that_speak_of_it(project, capsys):
    path = project / "src/model_checkpoint/limits.py"

    assert {site.path for _, site in draw(project, ["beside"], count=9, seed=0)} == {path.relative_to(project)}
    assert nearest_tests(project, path.relative_to(project), "beside") == [
        "tests/room/test_most.py",
        "src/model_checkpoint/limits.py",
    ]
    main(["beside"], root=project)
    assert capsys.readouterr().out.splitlines()[-1].split() == ["all", "2", "2", "0", "100%"]


@pytest.mark.slow
def test_who_lives_is_named_and_the_checkout_is_not_touched(project, capsys):
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}

    assert main(["room", "--count", "1000"], root=project) == 0

    said = capsys.readouterr().out.partition("lived:")[2]
    assert "src/model_checkpoint/room/__init__.py:13: return value == 7  ->  return None" in said
    assert "src/model_checkpoint/room/__init__.py:7: value < low  ->  (not (value < low))" not in said
    assert "src/model_checkpoint/room/__init__.py:7: value < low  ->  (value <= low)" in said  # no test can tell
    assert said.splitlines()[-1].split() == ["all", "8", "3", "0", "38%"]
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def test_no_time_means_no_mutant_and_says_so(project, capsys):
    main(["room", "--count", "2", "--minutes", "0"], root=project)

    assert "2 more were drawn and not tried: the time was over" in capsys.readouterr().out


@pytest.mark.slow
def test_a_test_that_fails_without_the_change_kills_nothing(project, capsys):
    (project / "tests/room/test_clip.py").write_text("def test_it():\n    assert False\n")

    main(["room", "--count", "2"], root=project)

    assert capsys.readouterr().out.splitlines()[-1].split() == ["all", "2", "0", "2", "-"]


def test_an_unknown_room_is_refused_with_the_known_ones(project, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["bare"], root=project)

    assert "no room 'bare' with tests of its own; there are room, beside" in capsys.readouterr().err


def test_the_nearest_tests_run_first(tmp_path):
    for name in ("tests/engine/reading/test_load.py", "tests/engine/test_other.py", "src/p/engine/reading/load.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    found = nearest_tests(tmp_path, (tmp_path / "src/p/engine/reading/load.py").relative_to(tmp_path), "engine")

    assert found == ["tests/engine/reading/test_load.py", "tests/engine/reading", "tests/engine", "src/p/engine"]
