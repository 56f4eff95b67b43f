"""The README's example runs as printed, twice: the second run resumes from the first."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_example_runs_and_resumes(tmp_path):
    code = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[1]

    first = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    again = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (first.returncode, first.stderr) == (0, "")
    assert (again.returncode, again.stderr) == (0, "")
    assert len(list((tmp_path / "runs/a/checkpoints").iterdir())) == 5
