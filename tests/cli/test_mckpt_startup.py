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
]
PROBE = """
import json, sys
sys.argv = ["mckpt", *json.loads(sys.argv[1])]
from model_checkpoint.cli.main import answer
try:
    answer()
except SystemExit:
    pass
print()
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("startup") / "run"
    for step in (1, 2):
        mc.save(folder, {"model": {"w": np.arange(6.0)}}, step=step, metrics={"val_loss": 1 / step})
    return folder


def imported(*words):
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(list(map(str, words)))], capture_output=True, text=True, check=True
    )
    modules = json.loads(done.stdout.splitlines()[-1])
    return {name for name in HEAVY if name in modules}, modules


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (("--version",), set()),
        (("--help",), set()),
        (("ls", "{}", "--json"), set()),
        (("ls", "{}"), {"rich"}),
        (("trash", "{}"), {"rich"}),
        (("pin", "{}@1", "--json"), set()),
        (("show", "{}"), {"rich"}),
        (("verify", "{}"), {"rich"}),
        (("cat", "{}", "model.w"), {"rich", "numpy"}),
    ],
    ids=lambda words: "-".join(sorted(words) if isinstance(words, set) else words),
)
def test_a_call_imports_what_it_needs_and_nothing_else(root, words, needed):
    heavy, modules = imported(*(word.format(root) for word in words))

    assert heavy <= needed
    homes = [name for name in modules if name.startswith("model_checkpoint.cli.verbs.")]
    assert "--help" in words or len(homes) <= 2  # the verb's own module, and what verbs share


STARTS = 7
BARE_PYTHONS = 18  # 200 ms where a bare Python takes 11 ms of the processor; most take 10 to 14
WITH_NUMPY = 26  # to look at numbers: NumPy alone takes 6; these take 19 to 22
ALL_VERBS = {  # in an order in which each finds what it needs
    "ls {}": BARE_PYTHONS,
    "ls {} --json": BARE_PYTHONS,
    "ls {} --query step>1": BARE_PYTHONS,
    "show {}": BARE_PYTHONS,
    "cat {} model.w": WITH_NUMPY,
    "diff {}@1 {}@1": WITH_NUMPY,
    "verify {}": BARE_PYTHONS,
    "repair {}": WITH_NUMPY,
    "prune {} --keep last:9 --dry-run": BARE_PYTHONS,
    "prune {} --keep last:9": BARE_PYTHONS,
    "forecast {}": BARE_PYTHONS,
    "pin {}@1": BARE_PYTHONS,
    "unpin {}@1": BARE_PYTHONS,
    "tag {}@1 paper": BARE_PYTHONS,
    "note {}@1 words": BARE_PYTHONS,
    "rm {}@1 --dry-run": BARE_PYTHONS,
    "rm {}@1": BARE_PYTHONS,
    "trash {}": BARE_PYTHONS,
    "restore {}@1": BARE_PYTHONS,
    "gc {} --dry-run": BARE_PYTHONS,
    "gc {}": BARE_PYTHONS,
    "export {} {}-{{turn}}.safetensors": WITH_NUMPY,
}
ASKING_A_CATALOG = {
    "experiments {}": BARE_PYTHONS,
    "metrics {}": WITH_NUMPY,
    "lineage {}": BARE_PYTHONS,
    "sql {} --tables": BARE_PYTHONS,
}
OTHER_WORK = {
    "doctor",  # tries whether torch can be imported
    "reindex",  # writes with the database library
    *{"convert", "adopt", "bench", "serve"},  # go on for as long as there is to do
}


def cost_of_start(env, *words):
    """Seconds of the processor that one start takes."""
    process = subprocess.Popen([sys.executable, *map(str, words)], env=env, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
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


def starts(words, tmp_path_factory, turns=STARTS):
    """What a bare Python and a call take, by turns, and the least of each: what else runs makes a start dearer only."""
    env = compiled_once(tmp_path_factory)
    call = ["-m", "model_checkpoint", *words]
    costs = [(cost_of_start(env, "-c", "pass"), cost_of_start(env, *call)) for _ in range(turns)]

    bare, cost = (min(column) for column in zip(*costs, strict=True))
    print(f"\n{' '.join(words[:1])}: {cost * 1e3:.0f} ms, {cost / bare:.1f} bare Pythons of {bare * 1e3:.0f} ms")
    return bare, cost


@pytest.mark.parametrize(
    "words", [("--version",), ("ls", "{}"), ("ls", "{}", "--json"), ("show", "{}"), ("pin", "{}@1")], ids=" ".join
)
def test_a_start_takes_no_more_than_some_bare_pythons(root, words, tmp_path_factory):
    bare, cost = starts([word.format(root) for word in words], tmp_path_factory)

    assert cost <= BARE_PYTHONS * bare


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["root", "cataloged"])
def test_every_verb_starts_in_some_bare_pythons_on_a_plain_root_and_with_a_catalog(
    request, tmp_path, tmp_path_factory, kind
):
    mine = tmp_path / "run"
    shutil.copytree(request.getfixturevalue(kind), mine)
    calls = ALL_VERBS | (ASKING_A_CATALOG if kind == "cataloged" else {})
    env, bare, cost = compiled_once(tmp_path_factory), [], {call: [] for call in calls}
    for turn in range(3):
        bare.append(cost_of_start(env, "-c", "pass"))
        for call in calls:
            words = call.replace("{}", str(mine)).replace("{{turn}}", str(turn)).split()
            cost[call].append(cost_of_start(env, "-m", "model_checkpoint", *words))

    units = {call: min(taken) / min(bare) for call, taken in cost.items()}
    print("", *(f"{unit:5.1f} {min(cost[call]) * 1e3:4.0f} ms  {call}" for call, unit in units.items()), sep="\n")
    assert {call: unit for call, unit in units.items() if unit > calls[call]} == {}


def test_no_verb_is_left_unmeasured_without_a_reason():
    measured = {call.split()[0] for call in ALL_VERBS | ASKING_A_CATALOG}

    assert measured | OTHER_WORK == VERBS.keys()
    assert not measured & OTHER_WORK


@pytest.mark.parametrize(
    ("words", "needed", "most"),
    [
        (("ls", "{}", "--json"), set(), BARE_PYTHONS),
        (("show", "{}"), {"rich"}, BARE_PYTHONS),
        (("experiments", "{}"), {"rich"}, BARE_PYTHONS),
        (("experiments", "{}", "--query", "val_loss < 1"), {"rich"}, BARE_PYTHONS),
        (("lineage", "{}"), {"rich"}, BARE_PYTHONS),
        (("sql", "{}", "--tables"), {"rich"}, BARE_PYTHONS),
        (("metrics", "{}"), {"rich", "numpy"}, WITH_NUMPY),
        (("pin", "{}@1"), {"rich"}, BARE_PYTHONS),
        (("tag", "{}@1", "paper"), {"rich"}, BARE_PYTHONS),
        (("note", "{}@1", "words"), {"rich"}, BARE_PYTHONS),
        (("rm", "{}@2"), {"rich"}, None),
        (("restore", "{}@2"), {"rich"}, None),
        (("repair", "{}"), {"rich", "numpy"}, WITH_NUMPY),
    ],
    ids=lambda words: "-".join(words) if isinstance(words, tuple) else "",
)
def test_a_call_that_asks_or_tells_a_catalog_file_does_without_the_database_library(
    cataloged, words, needed, most, tmp_path_factory
):
    called = [word.format(cataloged) for word in words]

    assert imported(*called)[0] <= needed
    if most is None:  # can be done once
        return
    bare, cost = starts(called, tmp_path_factory, turns=3)
    assert cost <= most * bare


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
