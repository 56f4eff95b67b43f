"""A group of torch.distributed."""

import pytest
import torch


@pytest.fixture
def alone():
    """One of one process."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()
