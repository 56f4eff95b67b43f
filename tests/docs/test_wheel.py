"""The wheel in an empty place: nothing but its own requirements beside it, then the words of the README.

Requirements come from the packages of the present environment, linked, so that no network is asked.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "pyproject.toml", "setup.py", "README.md", "LICENSE")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
HERE = str(distribution("numpy").locate_file(""))
MB = 1e6

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from the files that git knows or would take."""
    place = tmp_path_factory.mktemp("wheel")
    known = ["git", "ls-files", "-coz", "--exclude-standard", *SOURCES]
    listed = subprocess.run(known, cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        (place / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "tree" / name).write_bytes((ROOT / name).read_bytes())
    made = ["wheel", "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", str(place), str(place / "tree")]
    subprocess.run([*PIP, *made], check=True)
    return next(place.glob("*.whl"))


def needed(wanted: list[str], extra: str) -> dict[str, Distribution]:
    """The packages that requirements ask for, and theirs, as they are installed here."""
    found: dict[str, Distribution] = {}
    left = [(Requirement(one), extra) for one in wanted]
    while left:
        requirement, asked = left.pop()
        name = requirement.name.lower().replace("_", "-")
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": asked})):
            continue
        found[name] = distribution(requirement.name)
        more = requirement.extras or {""}
        left += [(Requirement(one), extra) for one in found[name].requires or () for extra in more]
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """An environment with the wheel and what its ``[server]`` asks for, and the bytes of all that."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    python = place / "bin/python"
    subprocess.run([*PIP, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)], check=True)
    (site,) = place.glob("lib/python*/site-packages")
    own = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    with zipfile.ZipFile(wheel) as content:
        (metadata,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        told = content.read(metadata).decode().partition("\n\n")[0]
    packages = needed(re.findall(r"^Requires-Dist: (.+)$", told, re.MULTILINE), "server")
    files = {file.locate() for one in packages.values() for file in one.files or ()}
    for package in packages.values():
        tops = {file.parts[0] for file in package.files or () if file.parts[0] != ".."}
        for top in tops:
            if not (site / top).exists():
                (site / top).symlink_to(package.locate_file(top))
    return place / "bin", own + sum(path.stat().st_size for path in map(Path, files) if path.is_file())


def environment(*, torch: bool) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MCKPT"))}
    return {**kept, "PYTHONPATH": HERE} if torch else kept


def run(command, folder, *, torch=False) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=environment(torch=torch), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_a_wheel_has_the_pages_the_stubs_and_the_migrations(wheel):
    with zipfile.ZipFile(wheel) as content:
        shipped = set(content.namelist())
    package = ROOT / "src/model_checkpoint"
    kinds = ("*.py", "*.pyi", "py.typed", "api/web/**/*")
    wanted = {path for kind in kinds for path in package.rglob(kind) if path.is_file()}

    assert {str(path.relative_to(ROOT / "src")) for path in wanted} <= shipped
    assert not [name for name in shipped if name.startswith(("tests/", "bench/", "demo/"))]


def test_it_is_small_and_starts_without_any_framework(installed, tmp_path, tell_figure):
    folder, nbytes = installed
    told = "import sys, time; began = time.process_time(); import model_checkpoint as mc; took = time.process_time()"
    told += "; print(mc.__file__, round((took - began) * 1000), sorted({'torch', 'numpy'} & set(sys.modules)))"
    home, milliseconds, heavy = run([folder / "python", "-c", told], tmp_path).split(maxsplit=2)
    missing = "import importlib.util as u; print([m for m in ('torch', 'jax', 'tensorflow') if u.find_spec(m)])"

    tell_figure(f"installed with [server]: {nbytes / MB:.0f} MB; CPU of an import", int(milliseconds) / 1000)
    assert Path(home).is_relative_to(folder.parent)
    assert heavy.strip() == "[]"
    assert nbytes < 200 * MB
    assert run([folder / "python", "-c", missing], tmp_path).strip() == "[]"


def test_a_newcomer_gets_what_the_readme_says(installed, tmp_path):
    folder, _ = installed
    readme = (ROOT / "README.md").read_text()
    example = re.search(r"## Example\n\n```python\n(.*?)```", readme, re.DOTALL)[1]
    assert len(example.splitlines()) <= 15
    (tmp_path / "train.py").write_text(example)

    run([folder / "python", "train.py"], tmp_path, torch=True)

    words = re.search(r"```\n(mckpt ls runs/a .*?)```", readme, re.DOTALL)[1]
    commands = [line.split() for line in re.findall(r"mckpt (.+?)(?=\s{3,}|\n)", words)]
    assert {"ls", "show", "verify", "diff", "rm", "prune", "doctor"} == {command[0] for command in commands}
    for command in sorted(commands, key=lambda one: one[0] == "rm"):
        done = subprocess.run(
            [folder / "mckpt", *command], cwd=tmp_path, env=environment(torch=False), capture_output=True, text=True
        )
        assert done.returncode == (command[0] == "diff"), (command, done.stderr)
        assert done.stdout
    assert "100" in run([folder / "mckpt", "ls", "runs/a"], tmp_path)


def test_the_dashboard_opens_on_what_was_saved(installed, tmp_path):
    folder, _ = installed
    save = "import numpy as np, model_checkpoint as mc; mc.save('runs/a', {'w': np.ones(3)}, step=7)"
    run([folder / "python", "-c", save], tmp_path)
    command = [folder / "mckpt", "serve", "runs", "--no-browser"]
    env = {**environment(torch=False), "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http://127\.0\.0\.1:(\d+)/\S*#token=(\S+)", server.stdout.readline())
        connection = http.client.HTTPConnection("127.0.0.1", int(address[1]), timeout=30)

        def asked(path):
            connection.request("GET", path, headers={"Authorization": f"Bearer {address[2]}"})
            answer = connection.getresponse()
            return answer.status, answer.read()

        status, page = asked("/")
        listed = re.findall(r'(?:href|src)="(/[^"]+\.(?:js|css|svg))"', page.decode())
        assert (status, len(listed)) == (200, 5)
        assert [path for path in listed if asked(path)[0] != 200] == []
        (row,) = json.loads(asked("/api/runs")[1])["rows"]
        assert (row["name"], row["newest"]["step"]) == ("a", 7)
        connection.close()
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)
    assert server.returncode == 0
