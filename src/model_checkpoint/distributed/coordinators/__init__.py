"""Coordinators: what lets the ranks of one program talk, by the transport the program already has.

ranked       which rank this is, of how many, and how long silence may last.
bounded      calls that come back in time, whatever the other side does.
kept_words   which words of which calls are still there.
local        one process, or several threads of one.
torch_group  the store of a torch.distributed process group.
mpi          messages of MPI.
jax_service  the coordination service of JAX.
"""
