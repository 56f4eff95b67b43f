"""Killed anywhere and started again, a fit of Lightning ends bit-identical to one that was never interrupted."""

import pytest

pytestmark = pytest.mark.slow

pl = pytest.importorskip("lightning.pytorch")

from tests.integrations.killing import ended, killed_until_done, start, unbroken  # noqa: E402
from tests.integrations.lightning.lightning_training import DATA, EPOCHS, STEPS, train  # noqa: E402


@pytest.mark.parametrize("kind", DATA)
def test_a_killed_fit_ends_as_if_it_had_not_been(tmp_path, kind):
    """Two kills for each kind of data, one of them after the first save."""
    whole, batches = unbroken(train, tmp_path, kind=kind, pause=0.01)

    starts = killed_until_done(
        train, tmp_path / "killed", tmp_path / "killed.out",
        kills=2, batches=batches, seed=kind, kind=kind, pause=0.01,
    )  # fmt: skip

    assert (tmp_path / "killed.out").read_text() == whole
    assert max(starts) > 0
    assert whole.startswith(f"{STEPS[kind]} ")
    assert " True " in whole


@pytest.mark.parametrize("kind", ["persistent workers", "stream"])
def test_a_finished_fit_given_more_epochs_ends_as_one_that_had_them_from_the_beginning(tmp_path, kind):
    options = {"kind": kind, "accumulate_grad_batches": 1}
    whole, _ = unbroken(train, tmp_path, **options)
    root, out = tmp_path / "longer", tmp_path / "longer.out"

    for epochs in (1, EPOCHS):
        out.unlink(missing_ok=True)
        assert ended(start(train, root, out, max_epochs=epochs, **options)) == 0

    assert out.read_text() == whole
    assert " True " in whole
    assert len((tmp_path / "longer.out.from").read_text().split()) == 2
