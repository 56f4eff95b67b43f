"""What may take the place of a checkpoint, on file systems where folders cannot change places too."""

import errno

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.errors import StepExists
from model_checkpoint.options import CheckpointFormat
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls


class Network(Syscalls):
    """A file system without exchange, such as NFS."""

    def exchange(self, one, other):
        raise OSError(errno.EINVAL, "Invalid argument")


def save(store, fill, **options):
    return mc.save(store, {"model": {"w": np.full(3, fill)}}, step=1, **options)


def filled(root):
    return float(mc.load(root)["model"]["w"][0])


@pytest.mark.parametrize("layout", [CheckpointFormat.SINGLE_FILE, CheckpointFormat.MULTI_SHARD])
def test_files_with_names_of_their_own_are_replaced_where_folders_cannot_change_places(tmp_path, layout):
    store = LocalStore(tmp_path, calls=Network())
    save(store, 1.0, format=layout)

    save(store, 2.0, format=layout, overwrite=True)

    assert filled(tmp_path) == 2.0


def test_a_consolidated_model_is_replaced_only_where_folders_change_places(tmp_path):
    layout = CheckpointFormat.CONSOLIDATED
    save(tmp_path, 1.0, format=layout)

    with pytest.raises(StepExists, match=r"index of a consolidated model has a fixed name.*Delete the old one first"):
        save(LocalStore(tmp_path, calls=Network()), 2.0, format=layout, overwrite=True)
    with pytest.raises(StepExists, match=r"already committed"):
        save(LocalStore(tmp_path, calls=Network()), 2.0, format=layout)
    before = filled(tmp_path)
    save(tmp_path, 3.0, format=layout, overwrite=True)
    save("memory://replacing", 4.0, format=layout)
    save("memory://replacing", 5.0, format=layout, overwrite=True)

    assert (before, filled(tmp_path), filled("memory://replacing")) == (1.0, 3.0, 5.0)
