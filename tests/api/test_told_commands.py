"""What the server tells people to type is what the command line knows."""

import re
from pathlib import Path

from model_checkpoint import api
from model_checkpoint.cli.verb_table import VERBS


def test_every_verb_the_server_and_its_pages_name_exists():
    folder = Path(api.__file__).parent
    files = [path for kind in ("*.py", "*.js") for path in folder.rglob(kind) if "vendor" not in path.parts]
    told = {verb for path in files for verb in re.findall(r"mckpt ([a-z]+)", path.read_text(encoding="utf-8"))}

    assert told > {"show", "rm", "restore", "verify", "prune"}
    assert told - {"on"} <= VERBS.keys()  # "mckpt on the root" is a sentence
