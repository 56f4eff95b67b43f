"""Performance: what a process may still take, how it moves many bytes and rows, and what it remembers of them.

Knows no tensors and no SQL. The names of the stub beside this file are imported on first use.

available_memory      how much this process may still take, by the machine, its control groups and its own limit.
available_cores       how many processors this process may use.
gc_pause              no search for cycles while millions of small objects are made.
copying               many bytes from one place to another, past the processor's caches where that was compiled.
parallel_checkpoints  the same work on many items in a few threads, each failure kept apart from the others.
batches               many rows to a writer, one transaction a batch, refused rows told one by one.
bulk_export           rows from anywhere into a CSV, JSON lines or Parquet file, streamed, whole or not at all.
row_formats           rows become lines of CSV or of JSON.
parquet_rows          rows become row groups of typed columns, where pyarrow is installed.
atomic_file           a file that appears under its name whole and on the medium, or not at all.
caches                what is remembered of checkpoints and experiments, each kind in a namespace of its own.
lru                   a cache with bounds in items, bytes and seconds.
operation_monitor     how long operations take, as percentiles over the whole run.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
