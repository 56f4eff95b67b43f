"""The shape of the code base, held by tests: sizes, docstrings, public names, import cost."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from xml.etree import ElementTree

import pytest

import model_checkpoint

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "model_checkpoint"
MODULES = sorted((ROOT / "src").rglob("*.py"))
FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))
MOST_MODULES = 13
MOST_TESTS = 16  # modules of a folder of tests or benchmarks
# one idea, told again in each room, or in each kind of store
SAME_IDEA = {"__init__", "errors", "names", "store", "attempt", "commit", "trash", "recovery", "failures", "mending"}
# words for which the field has better ones: nothing in the package is called by them
RETIRED_WORDS = {
    *{"wish", "landing", "trouble", "ground", "books", "roster", "parcel", "press", "squeeze", "pour"},
    *{"convoy", "errand", "machinery", "teller"},
}
RETIRED_CLASSES = {"Found"}
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = {room: one for one in CONTRACTS if one["type"] == "layers" for room in one["containers"]}
FILES = sorted(
    path for folder in ("src", "tests", "bench", "demo", "mutants", "proof") for path in (ROOT / folder).rglob("*.py")
)
PUBLIC_NAMES = [
    "__version__",
    "EnhancedCheckpointManager",
    "Run",
    "save",
    "save_async",
    "finish_saves",
    "preemption",
    "SaveJob",
    "SaveState",
    "load",
    "load_slice",
    "list_checkpoints",
    "verify",
    "repair",
    "RepairReport",
    "describe",
    "diff",
    "delete",
    "undelete",
    "collect_garbage",
    "pin",
    "unpin",
    "tag",
    "untag",
    "note",
    "prune",
    "last",
    "best",
    "pareto",
    "every",
    "ladder",
    "younger_than",
    "tagged",
    "pinned",
    "budget",
    "forecast",
    "register_codec",
    "rng_state",
    "ExperimentTracker",
    "CheckpointInfo",
    "CheckpointFormat",
    "CompressionLevel",
    "Progress",
    "LoadReport",
    "CheckpointException",
    "CheckpointNotFound",
    "WrongReference",
    "CheckpointWarning",
    "ExceptionType",
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_file_is_short_and_says_what_it_is(path):
    text = path.read_text()

    assert text.count("\n") <= 400
    assert ast.get_docstring(ast.parse(text))


def test_public_names_are_frozen():
    assert sorted(model_checkpoint.__all__) == sorted(PUBLIC_NAMES)
    for name in PUBLIC_NAMES:
        assert getattr(model_checkpoint, name) is not None


def test_import_is_cheap_and_drags_in_no_framework_and_no_room():
    probe = """
import json, sys, time
start = time.process_time()
import model_checkpoint
cost = time.process_time() - start
heavy = [m for m in ("torch", "sqlalchemy", "fastapi", "jax", "tensorflow") if m in sys.modules]
own = [m for m in sys.modules if m.partition(".")[0] == "model_checkpoint"]
print(json.dumps([cost, heavy, own]))
"""
    runs = [json.loads(subprocess.check_output([sys.executable, "-c", probe])) for _ in range(3)]

    assert min(cost for cost, _, _ in runs) < 0.150
    assert all(heavy == [] for _, heavy, _ in runs)
    assert all(own == ["model_checkpoint"] for _, _, own in runs)


def test_the_library_never_prints():
    for path in MODULES:
        if "cli" in path.parts:
            continue
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"], path


def inside(folder):
    """The modules and sub-rooms of a folder."""
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    return modules | {path.parent.name for path in folder.glob("*/__init__.py")}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.relative_to(PACKAGE.parent).as_posix())
def test_no_folder_is_a_corridor(folder):
    assert len([path for path in folder.glob("*.py") if path.stem != "__init__"]) <= MOST_MODULES


@pytest.mark.parametrize("top", ["tests", "bench"])
def test_no_folder_of_tests_or_benchmarks_is_a_corridor(top):
    modules = Counter(path.parent for path in FILES if path.is_relative_to(ROOT / top) and path.stem != "__init__")

    assert {folder: count for folder, count in modules.items() if count > MOST_TESTS} == {}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.relative_to(PACKAGE.parent).as_posix())
def test_the_map_of_a_room_has_its_name_and_names_all_that_is_in_it_and_nothing_else(folder):
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    title = text.partition(":")[0].replace(" ", "").replace("_", "").casefold()

    assert title == folder.name.replace("_", "")
    assert {line.split()[0] for line in text.splitlines() if "  " in line.strip()} == inside(folder)


def test_a_file_name_means_one_thing():
    stems = [path.stem for path in MODULES if path.stem not in SAME_IDEA]

    assert sorted({stem for stem in stems if stems.count(stem) > 1}) == []


def test_a_class_name_means_one_thing():
    names = [
        node.name.removeprefix("_")
        for path in MODULES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    ]

    assert sorted({name for name in names if names.count(name) > 1}) == []


def identifiers_of(path):
    """What a module gives a name to: itself, classes, functions, arguments, variables, attributes."""
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.ExceptHandler):
            yield node.name or ""
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def forms(word):
    """A word as it is written, and what it may be the plural or a tense of."""
    small = word.casefold()
    return {small, *(small.removesuffix(end) for end in ("s", "es", "ed", "ing"))}


def test_nothing_is_called_by_a_word_that_an_engineer_of_the_field_would_not_guess():
    named = {
        (name, path.relative_to(PACKAGE).as_posix())
        for path in MODULES
        for name in identifiers_of(path)
        if name.strip("_") in RETIRED_CLASSES
        or any(forms(word) & RETIRED_WORDS for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name))
    }

    assert sorted(named) == []


def test_every_room_with_rooms_inside_has_layers_that_leave_out_none_of_it():
    rooms = {folder for folder in FOLDERS if list(folder.glob("*/__init__.py"))}

    assert {".".join(folder.relative_to(PACKAGE.parent).parts) for folder in rooms} == LAYERS.keys()
    assert [room for room, one in LAYERS.items() if not one.get("exhaustive")] == []


def test_the_picture_of_the_house_shows_every_room_and_what_is_inside():
    picture = ElementTree.parse(ROOT / "docs" / "architecture.svg")
    texts = [" ".join(text.itertext()) for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    drawn = Counter(re.findall(r"\w+", " ".join(texts)))
    rooms = Counter(name for line in LAYERS["model_checkpoint"]["layers"] for name in re.findall(r"\w+", line))
    within = Counter(path.parent.name for path in PACKAGE.glob("*/*/__init__.py"))

    assert rooms + within - drawn == Counter()


def imports_of(path, package):
    """What a source imports anywhere: at the top, in a function, for type checkers; as (module, name or "")."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[:1] if node.level else []
            yield from ((".".join([*above, *filter(None, [node.module])]), alias.name) for alias in node.names)


class Doors:
    """The modules of a package, and for each name that one of its rooms gives away the module that defines it."""

    def __init__(self, folder):
        self.files = {
            ".".join(path.relative_to(folder.parent).with_suffix("").parts): path for path in folder.rglob("*.py")
        }
        self.given = {}
        for name, path in self.files.items():
            if path.stem == "__init__":
                room, stub = name.removesuffix(".__init__"), path.with_suffix(".pyi")
                listed = imports_of(stub if stub.exists() else path, room)
                self.given[room] = {taken: module for module, taken in listed if taken}

    def behind(self, module, name):
        """Where a name imported from a module is defined, or the door of a whole room; None outside the package."""
        if name in self.given.get(module, {}):
            return self.behind(self.given[module][name], name)
        whole = (f"{module}.{name}", f"{module}.{name}.__init__", module, f"{module}.__init__")
        return next((one for one in whole if one in self.files), None)

    def graph(self):
        """Which module needs which; a door needs what it gives away."""
        return {
            name: {
                found
                for module, taken in [*imports_of(path, name.rpartition(".")[0]), *self._given_by(name)]
                if (found := self.behind(module, taken)) not in (None, name)
            }
            for name, path in self.files.items()
        }

    def _given_by(self, name):
        return [(module, taken) for taken, module in self.given.get(name.removesuffix(".__init__"), {}).items()]


def test_no_import_of_any_kind_closes_a_circle():
    graph = Doors(PACKAGE).graph()

    order = list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle

    assert len(order) >= len(graph)
    assert sum(map(len, graph.values())) > 2 * len(graph)


def test_a_circle_through_the_front_door_of_a_room_is_found(tmp_path):
    """One module takes a name from its room, whose list has it from a module that needs the first."""
    room = tmp_path / "house" / "room"
    room.mkdir(parents=True)
    (tmp_path / "house/__init__.py").write_text("")
    (room / "__init__.py").write_text("import lazy_loader\n")
    (room / "__init__.pyi").write_text("from .lamp import Lamp as Lamp\nfrom .table import Table as Table\n")
    (room / "lamp.py").write_text("from house.room import Table\nclass Lamp: ...\n")
    (room / "table.py").write_text("def light():\n    from . import lamp\nclass Table: ...\n")

    with pytest.raises(CycleError, match=r"house\.room\.lamp.*house\.room\.table"):
        list(TopologicalSorter(Doors(tmp_path / "house").graph()).static_order())
