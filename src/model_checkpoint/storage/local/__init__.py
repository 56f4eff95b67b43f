"""Local: checkpoints as folders on a file system.

store           checkpoints as folders on a file system.
folder_entries  the names in a folder, read again only after it changed.
attempt         one attempt to save, from its lock to its publication.
mending         sealed files take their places in a published checkpoint, one rename each.
shared_attempt  what many ranks save or delete together, and the one step that decides what becomes of it.
data_files      the bytes of a checkpoint on their way to a file system, and back.
commit          the commit protocol, from a finished stage to a durable checkpoint.
replaced_files  what an overwrite or a repair puts others in the place of, kept in the trash for its grace.
trash           deleted checkpoints wait here until their grace ends, and can be brought back until then.
sidecar_files   small values of a root, one file each.
recovery        remove what dead attempts left, and trash past its grace.
locks           how an attempt shows that it is alive, and how recovery makes sure that it is dead.
paths           where things lie under a root, and the few steps on them that several operations share.
syscalls        every system call the storage room makes, one method each.
"""
