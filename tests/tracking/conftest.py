"""TEMP"""
import pytest
@pytest.fixture
def database_url(tmp_path):
    return f"sqlite:///{tmp_path}/db.db"
