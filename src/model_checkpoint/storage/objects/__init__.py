"""Objects: checkpoints in a bucket of S3, Google Cloud Storage or Azure.

store            checkpoints in Amazon S3, Google Cloud Storage, Azure, or whatever speaks one of their languages.
attempt          one attempt to save, from its lease to its publication.
writer           one data file on its way to an object store.
commit           one conditional put of the manifest makes, replaces or deletes a checkpoint.
reader           one data file of an object store, by ranged requests from many threads.
trash            deleted checkpoints wait here until their grace ends, and can be brought back until then.
recovery         remove what dead attempts left, and trash past its grace.
leases           how whoever works on an object store shows that it is alive.
keys             where everything lies below the prefix of an object store.
bucket           the one way to the objects of a bucket. Every request of the store goes through here.
signed_requests  the few S3 requests obstore has no call for, signed here (AWS Signature Version 4).
failures         what an object store answered becomes an error that says where, what, and what to do next.
"""
