"""Completion as bash does it for a person at a terminal, who types a tabulator."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest

import model_checkpoint as mc

MCKPT = f'#!/bin/sh\nexec "{sys.executable}" -m model_checkpoint "$@"\n'
PATIENCE = 12.0


@pytest.fixture
def home(tmp_path):
    """A home whose bash has learned to complete `mckpt`, and finds it."""
    bash = shutil.which("bash")
    assert bash is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mckpt").write_text(MCKPT)
    (tmp_path / "bin/mckpt").chmod(0o755)
    env = {**os.environ, "HOME": str(tmp_path), "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "TERM": "dumb"}
    env.pop("COMP_WORDBREAKS", None)
    told = subprocess.run(
        [bash, "--norc", "-c", "mckpt --install-completion; true"], env=env, capture_output=True, text=True, check=True
    )
    assert "bash completion installed" in told.stdout
    with (tmp_path / ".bashrc").open("a") as file:
        file.write("PS1='ready> '\n")
    return tmp_path, env


def typed(env, keys, wanted):
    """What a terminal shows when ``keys`` are typed to a bash of one's own, until ``wanted`` is there."""
    mine, theirs = pty.openpty()
    bash = subprocess.Popen(
        ["bash", "--noprofile", "--rcfile", f"{env['HOME']}/.bashrc", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
        cwd=env["HOME"],  # a line that is broken for its length cannot be read
        start_new_session=True,
    )
    os.close(theirs)
    try:
        seen = shown(mine, "ready> ")
        os.write(mine, keys.encode())
        return seen + shown(mine, wanted)
    finally:
        bash.kill()
        bash.wait()
        os.close(mine)


def shown(terminal, wanted):
    seen, end = "", time.monotonic() + PATIENCE
    while not re.search(wanted, seen):
        ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"not shown: {wanted}; only {seen!r}"
        seen += os.read(terminal, 1 << 16).decode()
    return seen


def test_bash_completes_verbs_and_the_checkpoints_behind_an_at(home):
    folder, env = home
    for step in (100, 200):
        mc.save(folder / "run", {"a": 1}, step=step)

    assert typed(env, "mckpt ver\t", "mckpt verify ")
    assert typed(env, "mckpt show run@1\t", r"run@1(00|\x08\x08@100) ")
    assert typed(env, "mckpt show run@\t\t", r"(?s)@100 +@200")
    assert typed(env, "mckpt diff run@100 run@2\t", r"run@2(00|\x08\x08@200) ")


def test_a_shell_that_completes_waits_for_no_library_that_it_does_not_need(tmp_path):
    mc.save(tmp_path / "run", {"a": 1}, step=100)
    words = {"COMP_WORDS": f"mckpt\nshow\n{tmp_path}/run\n@", "COMP_CWORD": "3", "_MCKPT_COMPLETE": "complete_bash"}

    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "model_checkpoint"],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "@100\n"
    assert not re.search(r"\| +(numpy|rich|sqlalchemy|torch|fastapi|pydantic)$", done.stderr, re.MULTILINE)
