"""Jobs: long work with progress and an end, that anybody may watch and stop.

job_runner   a few threads, a short queue; every job by its id, until it is long over.
verify_work  every byte of checkpoints compared with its digest, told with addresses.
repair_work  damage mended, then verified again.
kept_work    what took long to make is made once: it is there, or a job makes it.
tensor_work  figures and a histogram of every tensor, once for each digest.
diff_work    how far every tensor moved between two checkpoints.
plan_store   retention plans that were shown, until they are applied or too old; what was applied, until undone.
"""
