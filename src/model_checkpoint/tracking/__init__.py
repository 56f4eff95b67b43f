"""Tracking: experiments, their metrics, and how they are.

The names of the stub beside this file are imported on first use.

experiment_tracker  one run: its settings, its metrics and how it ended.
tracker_options     how a tracker carries metrics on, and where they wait.
metric_values       what users hand in becomes names and floats.
metric_queue        a logging call leaves its metrics here; one thread carries them on.
run_change          what is said about a run.
delivery            to the database, or to the spool while that is away.
spool               records on disk until they can go where they belong.
spool_lines         one record as one line that proves itself whole.
migration_hooks     whoever registered for it hears of a migration of the catalog.
bridges             what is logged here is written through to other trackers.
reporting           what people read: whether a run lives, one run as a page, runs side by side.
exit_watch          a last word for what is on its way when the program ends.
errors              each derives from the one tree and from the builtin its callers expect.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
