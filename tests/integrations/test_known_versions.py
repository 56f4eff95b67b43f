"""The extras install the versions that are known, and no others."""

import tomllib
from pathlib import Path

import pytest

from model_checkpoint.integrations.errors import TrainerUnknown
from model_checkpoint.integrations.known_versions import KNOWN_SERIES, require_known

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_extras_install_what_is_known_to_resume():
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    asked = {one for name in ("huggingface", "lightning", "keras") for one in extras[name]}

    known = {f"{package}~={series}.0" for package, series in KNOWN_SERIES.items()}
    assert asked == known - {f"pytorch_lightning~={KNOWN_SERIES['pytorch_lightning']}.0"}  # another name of lightning


@pytest.mark.parametrize("version", ["1.150.0", "1.1", "2.15.0"])
def test_a_version_that_only_looks_alike_is_refused(version):
    with pytest.raises(
        TrainerUnknown, match=rf"accelerate {version} is not known .* pip install 'accelerate~=1\.15\.0'"
    ):
        require_known("accelerate", version)
