"""What this room offers, and the module that defines it."""

from .trainer_run import TrainerRun as TrainerRun
