"""Objects: checkpoints in a bucket of S3, Google Cloud Storage or Azure.

store            checkpoints in Amazon S3, Google Cloud Storage, Azure, or whatever speaks one of their languages.
attempt          one attempt to save, from its lease to its publication.
joint_attempt    one attempt that many ranks write to, and the one object that decides about it.
mending          files take their places in a published checkpoint, one upload each.
writer           one data file on its way to an object store.
commit           one conditional put of the manifest makes, replaces or deletes a checkpoint.
reader           one data file of an object store, by ranged requests from many threads.
trash            deleted checkpoints can be brought back until their grace ends.
copied_trash     files that a repair replaced, and deletions of earlier versions, which copied every file.
sidecar_objects  small values of a root, one object each.
recovery         remove what dead attempts left, and trash past its grace.
folder           everything below the name of one checkpoint, and which version each file belongs to.
leases           how whoever works on an object store shows that it is alive.
requests         the one way to the objects of a bucket.
"""
