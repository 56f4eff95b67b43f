"""Hugging Face: a Trainer that goes on where it was killed, bit for bit.

trainer_run       one line that makes a Trainer resumable: ``TrainerRun(trainer, root)``.
trainer_methods   the methods of that one Trainer which are replaced, and what they ask of the run.
trainer_events    what the run learns from the Trainer's callbacks.
trainer_progress  what a Trainer knows of its own progress, as a part of a checkpoint.
trainer_rules     what is refused, and what becomes of the arguments that speak of checkpoints.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
