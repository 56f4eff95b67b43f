"""The shape of the code base, held by tests: sizes, docstrings, public names, import cost."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import model_checkpoint

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "src").rglob("*.py"))
FILES = sorted(
    path for folder in ("src", "tests", "bench", "demo", "mutants", "proof") for path in (ROOT / folder).rglob("*.py")
)
PUBLIC_NAMES = [
    "__version__",
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
    "describe",
    "diff",
    "delete",
    "undelete",
    "collect_garbage",
    "register_codec",
    "rng_state",
    "CheckpointInfo",
    "CheckpointFormat",
    "CompressionLevel",
    "Progress",
    "CheckpointException",
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
