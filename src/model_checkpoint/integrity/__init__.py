"""Integrity: is every byte still as it was saved? Asked of files, of checkpoints, of whole stores.

The names of the stub beside this file are imported on first use.

verifier      which checkpoints are healthy, of one, of an experiment, or of a whole store a piece at a time.
root_catalog  the checkpoints of a plain root, and when each was last verified, without any database.
examination   the five checks of one checkpoint, each byte of it read once.
backup        a second copy of a checkpoint, each byte compared with its digest on the way.
verdict       what verification found of one checkpoint, check by check, and of many.
file_tracker  which files should be there, and with what content, compared with what is.
journal       small records by key in one file, written by many threads and processes.
checksums     SHA-256 of files and of data, as `sha256sum` prints it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
