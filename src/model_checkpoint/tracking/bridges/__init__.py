"""Bridges: what is logged here is written through to other trackers, so that nobody has to leave the one he has.

The names of the stub beside this file are imported on first use.

bridge_group         the bridges of one run.
bridge               the way to one other tracker: a bounded queue, a thread, a count; it never holds up a training.
tracker_names        other trackers by their names, and which of them are installed.
mlflow_tracker       a run of MLflow.
wandb_tracker        a run of Weights & Biases.
trackio_tracker      a run of Trackio.
tensorboard_tracker  an event file of TensorBoard.
required_package     a library a bridge leads to, imported before the training begins.
other_tracker        what a bridge asks of any tracker.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
