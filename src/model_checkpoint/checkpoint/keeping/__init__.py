"""Keeping: what becomes of checkpoints once they are saved.

removal          a checkpoint goes to the trash, row and files, so that a kill anywhere can be finished; and comes back.
present_rows     checkpoints as retention looks at them, by what the catalog and the root know of each together.
unfinished       removals and returns that a process which died had begun, carried on or given up.
run_policies     by which keepers a run is pruned, known to the catalog.
apply_retention  which checkpoints of a run go to make room, told with reasons before it is done.
kept_reasons     why each checkpoint stays, for whoever tells it.
row_marks        pins and tags, in the root and in the catalog.
inspection       every byte of a run compared with its digest, and mended where it can be.
"""
