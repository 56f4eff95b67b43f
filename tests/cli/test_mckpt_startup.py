"""`mckpt` starts quickly: what a call does not need it does not import. Torch is never needed."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.checkpoint.catalog.reindexing import reindex
from model_checkpoint.cli.verb_table import VERBS
from model_checkpoint.database import open_catalog
from model_checkpoint.engine.reading.export import export_file

HEAVY = [
    "torch",
    "jax",
    "tensorflow",
    "sqlalchemy",
    "alembic",
    "fastapi",
    "obstore",
    "numpy",
    "rich",
    "asyncio",
    "pydantic",
    "ml_dtypes",
    "numpy.random",
    "model_checkpoint.database.summed_records",
]
PROBE = """
import json, sys
sys.argv = ["mckpt", *json.loads(sys.argv[1])]
from model_checkpoint.cli.main import answer
try:
    answer()
except SystemExit as end:
    assert end.code in (None, 0, 1), end.code  # 1: something was found
print()
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("startup") / "run"
    for step in (1, 2):
        mc.save(folder, {"model": {"w": np.arange(6.0) * step}, "epoch": 3}, step=step, metrics={"val_loss": 1 / step})
    return folder


def imported(*words):
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(list(map(str, words)))], capture_output=True, text=True, check=True
    )
    modules = json.loads(done.stdout.splitlines()[-1])
    return {name for name in HEAVY if name in modules}, modules


RICH, NUMPY, SQL = {"rich"}, {"numpy"}, {"sqlalchemy", "asyncio"}
SUMS = {"model_checkpoint.database.summed_records"}
CALLS = {  # what each may import of what is heavy, in an order in which each finds what it needs
    "--version": set(),
    "--help": set(),
    "ls {}": RICH,
    "ls {} --json": set(),
    "ls {} --query step>1": RICH,
    "show {}": RICH,
    "show {} --json": set(),
    "cat {} epoch": set(),
    "cat {} model.w": NUMPY,
    "show {} --tensors": RICH | NUMPY,
    "show {} --tensors --json": NUMPY,
    "diff {}@1 {}@1": set(),
    "diff {}@1 {}@2": RICH | NUMPY,
    "diff {}@1 {}@2 --json": NUMPY,
    "verify {}": RICH,
    "repair {}": set(),
    "prune {} --keep last:9 --dry-run": RICH,
    "prune {} --keep last:9": RICH,
    "forecast {}": RICH,
    "pin {}@1": set(),
    "unpin {}@1": set(),
    "tag {}@1 paper": set(),
    "note {}@1 words": set(),
    "rm {}@1 --dry-run": set(),
    "rm {}@1": set(),
    "trash {}": RICH,
    "restore {}@1": set(),
    "gc {} --dry-run": set(),
    "gc {}": set(),
    "export {} {}-{turn}.safetensors": set(),
    "convert {} {}-{turn}.again --to safetensors --part model": set(),
    "doctor {}": RICH,
    "bench --help": set(),
    "serve --help": set(),
}
ASKING_A_CATALOG = {
    "experiments {}": RICH | SUMS,
    "experiments {} --query val_loss<1 --limit 9": RICH | SUMS,
    "metrics {}": RICH | NUMPY | SUMS,
    "lineage {}": RICH | SUMS,
    "sql {} --tables": RICH,
    "reindex {} --dry-run": set(),
    "reindex {}": set(),
}
MAKING_A_CATALOG = {"reindex {} --dry-run": SQL | SUMS, "reindex {}": SQL | SUMS}
HEAVIER = {  # these need a library that takes longer to import than all else does; the manual says which
    "bench {}-bench --size 2MB --rounds 1": RICH | NUMPY | {"numpy.random"},
}
NOT_TRIED = {
    "adopt",  # brings torch where it is installed: what it takes over becomes tensors of torch
}


SHARED = {"model_checkpoint.cli.verbs.verb_arguments", "model_checkpoint.cli.verbs.extras"}


def spoken(call, root, turn=0):
    """The words of a call."""
    return call.replace("{}", str(root)).replace("{turn}", str(turn)).split()


@pytest.mark.parametrize("kind", ["root", "cataloged"])
def test_a_call_imports_what_it_needs_and_nothing_else(request, tmp_path, kind):
    mine = tmp_path / "run"
    shutil.copytree(request.getfixturevalue(kind), mine)
    calls = CALLS | (ASKING_A_CATALOG if kind == "cataloged" else MAKING_A_CATALOG) | HEAVIER
    found = {call: imported(*spoken(call, mine)) for call in calls}

    assert {call: heavy - calls[call] for call, (heavy, _) in found.items() if heavy - calls[call]} == {}
    for call, (_, modules) in found.items():
        homes = {name for name in modules if name.startswith("model_checkpoint.cli.verbs.")} - SHARED
        assert len(homes) <= 1 or call == "--help", call


def test_no_verb_is_left_untried_without_a_reason():
    tried = {call.split()[0] for call in CALLS | ASKING_A_CATALOG | HEAVIER if not call.startswith("-")}

    assert tried | NOT_TRIED == VERBS.keys()
    assert not tried & NOT_TRIED


MOST = 17  # bare Pythons: 200 ms where one takes 12 ms of the processor
BESIDE = {"show {} --tensors": 2}  # bare Pythons more: NumPy, which takes four, a table, and a catalog that is asked
SOONEST, LATEST = 3, 12  # turns: what else runs makes a start dearer only, so the least of more of them is nearer


def cost_of_start(env, *words):
    """Seconds of the processor that one start takes."""
    process = subprocess.Popen([sys.executable, *map(str, words)], env=env, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 1)  # 1: something was found
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="module")
def cataloged(root, tmp_path_factory):
    """The same with a catalog, which is told, and asked why each is kept."""
    folder = tmp_path_factory.mktemp("cataloged") / "run"
    shutil.copytree(root, folder)
    with open_catalog(f"sqlite:///{folder}/catalog.db") as catalog:
        reindex(folder, catalog)
    return folder


def compiled_once(tmp_path_factory):
    """The environment of a call that finds its modules compiled, as an installed package is."""
    compiled = str(tmp_path_factory.getbasetemp() / "compiled")
    return {**os.environ, "PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}


@pytest.fixture
def bare_torch(tmp_path):
    """A torch that costs nothing: `doctor` loads one in another process, which is no part of its start."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "torch.py").write_text(
        "__version__ = '0'\nclass cuda:\n    is_available = staticmethod(lambda: False)\n"
    )
    return str(tmp_path / "lib")


def too_dear(calls, root, env):
    """The calls that take more than the most, in bare Pythons, measured by turns until none does, or time is up."""
    bare, least = [], dict.fromkeys(calls, float("inf"))
    for turn in range(LATEST):
        bare.append(cost_of_start(env, "-c", "pass"))
        for call in calls:
            taken = cost_of_start(env, "-m", "model_checkpoint", *spoken(call, root, turn))
            least[call] = min(least[call], taken)
        units = {call: taken / min(bare) for call, taken in least.items()}
        dear = {call: unit for call, unit in units.items() if unit > MOST + BESIDE.get(call, 0)}
        if turn + 1 >= SOONEST and not dear:
            break
    print("", *(f"{unit:5.1f} {least[call] * 1e3:4.0f} ms  {call}" for call, unit in units.items()), sep="\n")
    return dear


def test_a_few_verbs_start_in_some_bare_pythons(root, tmp_path_factory):
    calls = ["--version", "ls {}", "cat {} epoch", "diff {}@1 {}@1", "repair {}", "pin {}@1"]

    assert too_dear(calls, root, compiled_once(tmp_path_factory)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["root", "cataloged"])
def test_every_verb_starts_in_some_bare_pythons(request, tmp_path, tmp_path_factory, kind, bare_torch):
    mine = tmp_path / "run"
    shutil.copytree(request.getfixturevalue(kind), mine)
    env = compiled_once(tmp_path_factory)
    env["PYTHONPATH"] = os.pathsep.join([bare_torch, *filter(None, [env.get("PYTHONPATH")])])

    assert too_dear(CALLS | (ASKING_A_CATALOG if kind == "cataloged" else {}), mine, env) == {}


LISTENING = """
import json, os, sys
from model_checkpoint.api.serving import serve
def tell(line):
    print(json.dumps(sorted(sys.modules)), flush=True)
    os._exit(0)
serve([sys.argv[1]], tell=tell)
"""


def test_a_server_listens_before_it_brings_what_saves_loads_and_counts(cataloged):
    done = subprocess.run([sys.executable, "-c", LISTENING, str(cataloged)], capture_output=True, text=True, check=True)

    modules = json.loads(done.stdout)
    assert "fastapi" in modules
    late = ("numpy", "model_checkpoint.engine.writing.save", "model_checkpoint.engine.reading.load", "torch")
    assert not [name for name in late if name in modules]


SERVED = 2.75  # times what FastAPI and uvicorn alone take; SQLAlchemy takes half as much as they do


def cost_of_listening(env, root):
    """Seconds of the processor until a server says where it listens; it says so to a pipe at once."""
    words = ["-m", "model_checkpoint", "serve", str(root), "--no-browser"]
    process = subprocess.Popen([sys.executable, *words], env=env, stdout=subprocess.PIPE)
    with process.stdout:
        assert process.stdout.readline().startswith(b"serving ")
    process.kill()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["root", "cataloged"])
def test_a_server_listens_soon_after_its_libraries_are_there(request, tmp_path, tmp_path_factory, kind):
    root = request.getfixturevalue(kind)
    env = {**compiled_once(tmp_path_factory), "TMPDIR": str(tmp_path)}  # a server that is killed leaves its folder
    libraries, listening = [], []
    for turn in range(LATEST):
        libraries.append(cost_of_start(env, "-c", "import fastapi, uvicorn"))
        listening.append(cost_of_listening(env, root))
        share = min(listening) / min(libraries)
        if turn + 1 >= SOONEST and share <= SERVED:
            break
    print(f"\n{share:5.2f} {min(listening) * 1e3:4.0f} ms of {min(libraries) * 1e3:4.0f} ms")

    assert share <= SERVED


NO_TORCH = """
import sys
class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "jax", "tensorflow", "keras"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Wall())
import json
from model_checkpoint.cli.main import answer
for words in json.loads(sys.argv[1]):
    sys.argv = ["mckpt", *words]
    try:
        answer()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    print(f"<<{words[0]} {code}>>")
assert not {"torch", "jax", "tensorflow"} & set(sys.modules)
"""


def test_every_verb_works_without_torch(root, tmp_path):
    calls = [
        ["ls", root],
        ["show", root, "--tensors"],
        ["cat", root, "model.w"],
        ["diff", f"{root}@1", f"{root}@1"],
        ["verify", root],
        ["repair", root],
        ["doctor", root],
        ["bench", tmp_path / "trial", "--size", "1MiB", "--rounds", "1"],
        ["prune", root, "--keep", "last:9"],
        ["forecast", root],
        ["pin", f"{root}@1"],
        ["tag", f"{root}@1", "paper"],
        ["note", f"{root}@1", "words"],
        ["rm", f"{root}@1"],
        ["trash", root],
        ["restore", f"{root}@1"],
        ["gc", root],
        ["export", root, tmp_path / "out.safetensors"],
        ["reindex", root],
        ["experiments", root],
        ["metrics", root],
        ["lineage", root],
        ["sql", root, "select 1"],
        ["unpin", f"{root}@1"],
        ["convert", root, tmp_path / "as_hf", "--to", "hf", "--part", "model"],
        ["convert", tmp_path / "as_hf", tmp_path / "back", "--step", "3"],
        ["convert", tmp_path / "out.safetensors", tmp_path / "again", "--step", "4"],
        ["adopt", tmp_path / "theirs", tmp_path / "adopted"],
    ]
    (tmp_path / "theirs").mkdir()
    export_file(root, tmp_path / "theirs" / "step-5.safetensors")
    assert {call[0] for call in calls} == VERBS.keys() - {"serve"}  # which goes on for ever, and is tried elsewhere

    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH, json.dumps([list(map(str, call)) for call in calls])],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("<<")] == [
        f"<<{call[0]} 0>>" for call in calls
    ]
    assert "not installed; NumPy, JAX and plain states work without it" in done.stdout
