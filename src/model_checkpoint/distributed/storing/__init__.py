"""Storing: where checkpoints are kept, by path, by options, or in a storage of the user's own.

storage_contract  what a storage of one's own must be able to do.
folder_storage    bytes in files under a folder.
keyed_calls       the calls of a storage, repeated where that helps, their errors typed.
keyed_files       files of a storage, written whole and read by ranges.
keyed_attempt     a save on its way into a storage.
keyed_sweep       what nobody needs any more.
keyed_store       a storage as a place that keeps checkpoints.
limited_calls     the calls of a store for one call with a limit.
storage_roots     from whatever is called a storage to the store of the engine.
storage_factory   storages made by options.
"""
