"""Run the `mckpt` command as ``python -m model_checkpoint``."""

from model_checkpoint.cli.main import run

run()
