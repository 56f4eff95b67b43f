"""What two ranks of MPI hear of each other, with every thread allowed to talk and with only one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("mpi_words.py")
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable]

WORDS = [
    {"save-1/mine/1": "from one"},
    {"save-1/made/0": "from nought"},
    {"save-1/done/0": ""},
]
REFUSED = "OptionInvalid: MpiCoordinator: MPI was started without THREAD_MULTIPLE, so only the thread that started it"


def facts_of_both(folder, level):
    """What each rank has written down."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*MPIRUN, str(PROGRAM), str(folder), level]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return [json.loads((folder / f"facts-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.distributed
@pytest.mark.parametrize("level", ["multiple", "funneled"])
def test_two_ranks_hear_each_other_whichever_thread_may_talk(tmp_path, level):
    any_thread = level == "multiple"

    for rank, facts in enumerate(facts_of_both(tmp_path, level)):
        refused = facts.pop("in a thread")
        assert refused == 2 if any_thread else refused.startswith(REFUSED)
        late, waiting = facts.pop("by another thread")
        assert late == {"thread-1/made/0": "at last"}
        assert waiting == ([] if rank else [0 if any_thread else 1])
        assert facts == {
            "who": [rank, 2, 7.0, 0, 1],
            "scopes": [True, False],
            "alone": [1, 0],
            "returns errors": True,
            "attends": not any_thread,
            "words": [*WORDS, {f"save-1/vote/{rank}": "of my own"}],
            "remembered": [f"count-{number}/vote/1" for number in range(2, 10)],
            "many at a look": ["it"] * 3,
            "made anew": [[2, 2], [1, 1], [2, 2]],
        }
