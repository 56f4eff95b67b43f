"""Accelerate: the loop that resumes by itself, for what an Accelerator prepared.

accelerated_run   the loop: ``for batch in AcceleratedRun(...)``.
prepared_objects  all that an Accelerator keeps and a resume must bring back, by name.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
