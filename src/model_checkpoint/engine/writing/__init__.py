"""Writing: from a flat state to a committed checkpoint.

request         what a caller asked to save, checked before anything is touched.
commit_time     when a checkpoint was saved, in an order that no clock set back turns round.
incremental     find the checkpoint to build on, learn what changed since, and repeat whole files that did not.
save_plan       a save planned to the last byte: which files, what in each, where every tensor lies.
slabs           move the bytes of many leaves into files, hashing each chunk on the way.
compress        write data files whose chunks are compressed, in parallel and yet always the same bytes.
shared_pages    pages that several runs share, since chunks end anywhere and direct writes only on page borders.
manifest_build  gather what the workers found into the manifest, and the index of a consolidated model.
opaque_save     files that a storage backend wrote become a checkpoint like any other.
rank_saves      the states of many ranks become one checkpoint.
bandwidth       how many bytes per second saves to a root have really reached the medium with.
save            one training state becomes one durable checkpoint. Read ``save`` and you have read the pipeline.
"""
