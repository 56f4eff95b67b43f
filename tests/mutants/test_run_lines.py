"""What a module of tests runs is recorded once for one state of its room, and tells which tests try a mutant."""

import pytest
from mutants.run_lines import RunLines, Shelf
from mutants.workshop import Workshop
from tests.mutants.rehearsed_project import made_project

ROOM, OTHER = (f"src/model_checkpoint/{room}/one.py" for room in ("room", "other"))
RAN = {"tests/room/test_a.py::test_one": [0.5, {ROOM: [3, 4]}]}


@pytest.fixture
def tree(tmp_path):
    tests = ["tests/conftest.py", "tests/room/test_a.py", "tests/room/test_b.py"]
    for name in [ROOM, OTHER, *tests, "pyproject.toml"]:
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text("")
    return tmp_path / "tree"


@pytest.mark.parametrize(
    ("changed", "known"),
    [
        (None, True),
        ("tests/room/test_b.py", True),
        ("tests/room/test_a.py", False),
        (ROOM, False),
        (OTHER, True),
        ("tests/conftest.py", False),
        ("pyproject.toml", False),
    ],
)
def test_what_tests_ran_is_known_until_they_or_their_room_change(tree, tmp_path, changed, known):
    module = tree / "tests/room/test_a.py"
    Shelf(tmp_path / "kept", tree, "room").put(module, RAN)
    if changed:
        (tree / changed).write_text("x = 1\n")

    shelf = Shelf(tmp_path / "kept", tree, "room")

    assert shelf.take(module) == (RAN if known else None)


def test_only_the_latest_state_of_a_rooms_sources_is_kept(tree, tmp_path):
    for room, text in (("room", "a"), ("other", "a"), ("room", "b")):
        (tree / ROOM).write_text(text)
        Shelf(tmp_path / "kept", tree, room).put(tree / "tests/room/test_a.py", RAN)

    assert sorted(path.name.partition("-")[0] for path in (tmp_path / "kept").iterdir()) == ["other", "room"]


def test_a_mutant_meets_the_quickest_tests_of_its_lines_first_and_no_more_than_a_minute_of_them():
    lines = RunLines()
    tests = [("long", 59.5, [3]), ("quick", 0.1, [3, 4]), ("elsewhere", 0.0, [9]), ("fair", 0.6, [5])]
    for test, seconds, ran in tests:
        lines.add(test, seconds, {"src/room.py": ran})

    assert lines.tests_of("src/room.py", 3, 4) == ["quick", "long"]
    assert lines.tests_of("src/room.py", 3, 5) == ["quick", "fair"]
    assert lines.tests_of("src/room.py", 6, 8) == lines.tests_around("src/none.py") == []
    assert lines.tests_around("src/room.py") == ["elsewhere", "quick", "fair"]


@pytest.mark.slow
def test_a_second_rehearsal_of_the_same_state_records_only_modules_that_are_new(tmp_path):
    root = made_project(tmp_path)
    for number, more in enumerate(("", "tests/room/test_more.py")):
        if more:
            (root / more).write_text("def test_more():\n    assert True\n")
        before = {path: path.stat().st_mtime_ns for path in (root / "build").rglob("*.json")}
        shop = Workshop(root, tmp_path / str(number))
        shop.rehearse("room")
        shop.close()

    after = {path: path.stat().st_mtime_ns for path in (root / "build").rglob("*.json")}
    assert len(after) == len(before) + 1 > 1
    assert after.items() >= before.items()
