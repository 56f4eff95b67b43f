"""Reading: rows of the shelves become the documents of :mod:`..answers`; nothing is changed here.

server_facts       what is served, and what may be done to it.
run_status         how a run is, in one word with its evidence, what would be lost, and where it began.
run_lines          runs searched, sorted and paged, from summary rows alone.
run_detail         one run, whole.
series_frames      series as binary frames or JSON.
checkpoint_lines   checkpoints in lists, each with the reasons that keep it.
checkpoint_detail  one checkpoint, whole: parts, files, damage, and what to type.
damage_lines       what verification found, with its address.
lineage_nodes      where runs came from, and what each changed.
save_timeline      what saves cost, segment by segment and hook by hook.
run_extras         memory plan and loss scale, where a run has them.
storage_use        where the bytes are, and when a disk is full.
integrity_state    how far all that is stored can be trusted.
"""
