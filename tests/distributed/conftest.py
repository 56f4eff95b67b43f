"""What tests of many ranks stand on: threads as ranks for what is quick, real processes joined by gloo for the rest."""

import pytest
from tests.ground.rank_zygote import Zygote


@pytest.fixture(scope="session")
def zygote():
    """Forks groups of real processes that have torch imported."""
    made = Zygote("tests.distributed.scenes", "tests.distributed.fault_scenes")
    yield made
    made.close()
