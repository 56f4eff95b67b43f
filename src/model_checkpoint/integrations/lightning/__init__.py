"""Lightning: one callback, and a run of PyTorch Lightning goes on where it was, bit for bit.

The names of the stub beside this file are imported on first use.

lightning_run          the callback a user adds to the trainer.
trainer_checks         ways of training that no resume is known to be exact with, refused by name.
fit_session            one call of ``fit``: where it saves, leaves, and goes on.
placed_loaders         loaders that Lightning iterates over, begun anywhere.
epoch_averages         what was summed up since the epoch began: logged means, metrics of torchmetrics.
log_listening          what a trainer logs, heard without being one of its loggers.
restarting             the few places where Lightning would go on otherwise than it would have gone.
checkpoint_references  a checkpoint of ours wherever Lightning takes the path of one.
namespaces             Lightning under its two names, and whether its version is known.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
