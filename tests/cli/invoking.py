"""`mckpt` called within the test."""

from typer.testing import CliRunner

from model_checkpoint.cli.app import app


def invoke(*words):
    return CliRunner().invoke(app, list(map(str, words)))
