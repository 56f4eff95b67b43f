"""What tests of verification stand on."""

import pytest
from tests.integrity.verified_runs import save


@pytest.fixture
def root(tmp_path):
    save(tmp_path / "run", 1, 2, 3)
    return tmp_path / "run"
