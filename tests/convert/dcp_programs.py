"""Programs that use torch.distributed.checkpoint as it comes."""

import torch.distributed.checkpoint as dcp
from tests.integrations.dcp.dcp_scenes import join, same, state


def save_theirs(rank, world, folder, *, folder_of):
    dcp.save(state(join()), checkpoint_id=folder_of)


def load_theirs(rank, world, folder, *, folder_of):
    mesh = join()
    target = state(mesh, filled=False)
    dcp.load(target, checkpoint_id=folder_of)
    return same(target, state(mesh))
