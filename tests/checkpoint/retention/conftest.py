"""A root to prune."""

import pytest
from tests.checkpoint.retention.retention_ground import fill


@pytest.fixture
def folder(tmp_path):
    """A folder with six steps."""
    fill(tmp_path / "runs", range(1, 7))
    return tmp_path / "runs"
