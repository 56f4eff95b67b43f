"""A short run in mixed precision with one overflow, and its checkpoint."""

import pytest
from tests.precision.precision_models import build, train, wrap

from model_checkpoint.precision import MixedPrecisionCheckpointManager as Manager


@pytest.fixture
def run():
    model = build()
    optimizer = wrap(model)
    train(model, optimizer, range(8), spoil={2})
    return model, optimizer


@pytest.fixture
def checkpoint(run):
    return Manager.create_checkpoint(run[1], metadata={"dataset": "words"})
