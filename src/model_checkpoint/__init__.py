"""model_checkpoint: everything a training run must not lose and must not hold in memory.

The public names are those of the stub beside this file; each is imported on first use, so that importing the package
stays cheap.
"""

import logging

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.1.0"
__all__ += ["__version__"]

logging.getLogger("model_checkpoint").addHandler(logging.NullHandler())
