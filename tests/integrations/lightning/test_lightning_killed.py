"""Killed anywhere and started again, a fit of Lightning ends bit-identical to one that was never interrupted."""

import pytest

pytestmark = pytest.mark.slow

pl = pytest.importorskip("lightning.pytorch")

from tests.integrations.killing import whole_and_killed, whole_and_lengthened  # noqa: E402
from tests.integrations.lightning.lightning_training import DATA, EPOCHS, STEPS, train  # noqa: E402


@pytest.mark.parametrize("kind", DATA)
def test_a_killed_fit_ends_as_if_it_had_not_been(tmp_path, kind):
    """Two kills for each kind of data, one of them after the first save."""
    whole, killed, starts = whole_and_killed(train, tmp_path, kills=2, seed=kind, kind=kind, pause=0.01)

    assert killed == whole
    assert max(starts) > 0
    assert whole.startswith(f"{STEPS[kind]} ")
    assert " True " in whole


@pytest.mark.parametrize("kind", ["persistent workers", "stream"])
def test_a_finished_fit_given_more_epochs_ends_as_one_that_had_them_from_the_beginning(tmp_path, kind):
    lengths = [{"max_epochs": epochs} for epochs in (1, EPOCHS)]
    whole, longer, starts = whole_and_lengthened(train, tmp_path, lengths, kind=kind, accumulate_grad_batches=1)

    assert longer == whole
    assert " True " in whole
    assert len(starts) == 2
