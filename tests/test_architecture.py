"""The shape of the code base, held by tests: sizes, docstrings, public names, import cost."""

import ast
import json
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import model_checkpoint

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "model_checkpoint"
MODULES = sorted((ROOT / "src").rglob("*.py"))
FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))
MOST_MODULES = 13
# one idea, told again in each room, or in each kind of store
SAME_IDEA = {"__init__", "errors", "names", "store", "attempt", "commit", "trash", "recovery", "failures", "mending"}
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


def test_import_is_cheap_and_drags_in_no_framework():
    probe = """
import json, sys, time
start = time.process_time()
import model_checkpoint
cost = time.process_time() - start
heavy = [m for m in ("torch", "sqlalchemy", "fastapi", "jax", "tensorflow") if m in sys.modules]
print(json.dumps([cost, heavy]))
"""
    runs = [json.loads(subprocess.check_output([sys.executable, "-c", probe])) for _ in range(3)]

    assert min(cost for cost, _ in runs) < 0.150
    assert all(heavy == [] for _, heavy in runs)


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


@pytest.mark.parametrize("folder", FOLDERS[1:], ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_the_map_of_a_room_names_everything_in_it(folder):
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))

    assert {line.split()[0] for line in text.splitlines() if "  " in line.strip()} >= inside(folder)


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


def test_every_room_with_rooms_inside_has_layers():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layered = {container for one in contracts if one["type"] == "layers" for container in one["containers"]}

    rooms = {folder for folder in FOLDERS if list(folder.glob("*/__init__.py"))}
    assert {".".join(folder.relative_to(PACKAGE.parent).parts) for folder in rooms} == layered


def imports_of(path):
    """The modules of the package that a module imports anywhere: at the top, in a function, for type checkers."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield f"{node.module}.{alias.name}"
                yield node.module


def test_no_import_of_any_kind_closes_a_circle():
    files = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    graph = {
        name: {other for other in imports_of(path) if other in files}
        for name, path in files.items()
        if path.stem != "__init__"
    }

    order = list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle

    assert len(order) >= len(graph)
