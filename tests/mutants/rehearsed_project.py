"""A small project: a room whose functions tests run here, in a fork, in a process they start, or not at all.

Its tests start a helper as they are imported, as some libraries do, which no trial may take away from the next.
"""

import subprocess

SOURCE = '''"""A room."""
LIMIT = 3


def clip(value, low=0):
    if value < low:
        return low
    return value


def forked(value):
    return value + 1


def started(value):
    return value + 2


def told_elsewhere(value):
    return not value


def never_tested(value):
    return value == 7


print(len("x"))
'''
TESTS = """
import os, subprocess, sys
from model_checkpoint.room import LIMIT, clip, forked

HELPER = subprocess.Popen(["cat"], stdin=subprocess.PIPE)  # ends with who imports this

def test_clip(tmp_path):
    os.kill(HELPER.pid, 0)
    assert [clip(value, 5) for value in (4, 5, 6)] == [5, 5, 6]
    assert clip(-1) == 0

def test_limit():
    assert (LIMIT, clip(2)) == (3, 2)

def test_forked():
    child = os.fork()
    if not child:
        os._exit(forked(1))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2

def test_started():
    code = "import sys; from model_checkpoint.room import started; sys.exit(started(1))"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 3

def test_that_fails_anyhow():
    assert clip(1) == 5
"""
ELSEWHERE = """
from model_checkpoint.room import told_elsewhere

def test_it():
    assert told_elsewhere(False) is True
"""


def made_project(folder):
    root = folder / "project"
    files = {
        "src/model_checkpoint/__init__.py": "",
        "src/model_checkpoint/room/__init__.py": SOURCE,
        "tests/room/test_clip.py": TESTS,
        "tests/other/test_elsewhere.py": ELSEWHERE,
        "pytest.ini": "[pytest]\n",
        ".gitignore": "build/\n",
    }
    return made_repository(root, files)


def made_repository(root, files):
    """A repository of files with these texts, none of them committed."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root
