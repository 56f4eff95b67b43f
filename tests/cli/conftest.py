"""What tests of the command stand on."""

import sys
from types import SimpleNamespace

import pytest

from model_checkpoint.cli.main import answer


@pytest.fixture
def mckpt(capsys, monkeypatch):
    """The command with its exit code and both streams, in this process: starting Python takes a second."""

    def answered(*words):
        monkeypatch.setattr(sys, "argv", ["mckpt", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:  # noqa: PT011  # any exit code: it is what the tests look at
            answer()
        return SimpleNamespace(code=ended.value.code or 0, **capsys.readouterr()._asdict())

    return answered
