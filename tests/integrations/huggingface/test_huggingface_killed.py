"""A Trainer of transformers, killed anywhere and started again, ends as if it had never been interrupted."""

import signal
import warnings

import pytest
from tests.integrations.huggingface.hf_training import KINDS, STEPS, train
from tests.integrations.killing import ended, start, starts_of, told_to_end, unbroken, whole_and_killed

import model_checkpoint as mc

pytestmark = pytest.mark.slow
WARM = "saved by epoch, half precision"


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory):
    """Import what a Trainer imports late, so that the children come to their first save quickly."""
    folder = tmp_path_factory.mktemp("warm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ended(start(train, folder / "a", folder / "a.out", kind=WARM, num_train_epochs=1)) == 0
        train(folder / "b", folder / "b.out", kind=WARM, num_train_epochs=1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_trainer_ends_as_if_it_had_not_been(tmp_path, kind):
    whole, killed, starts = whole_and_killed(train, tmp_path, kills=3, seed=kind, kind=kind, pause=0.01)

    assert killed == whole
    assert max(starts) > 0
    assert (int(whole.split()[2]) < STEPS[kind]) is ("half precision" in kind)  # some were skipped
    assert whole.startswith(f"{STEPS[kind]} True ")
    assert len(mc.list_checkpoints(tmp_path / "killed")) <= 3  # the last two, and the best


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_trainer_that_is_told_to_end_saves_after_the_step_and_goes_on_from_there(tmp_path, number, code):
    kind, root, out = "persistent workers", tmp_path / "told", tmp_path / "told.out"
    whole, _ = unbroken(train, tmp_path, kind=kind)

    options = {"kind": kind, "pause": 0.02, "save_strategy": "no"}
    assert told_to_end(train, root, out, number=number, batches=5, **options) == code
    saved = [one.step for one in mc.list_checkpoints(root)]
    assert len(saved) == 1
    assert ended(start(train, root, out, kind=kind)) == 0

    assert out.read_text() == whole
    assert starts_of(out) == [0, *saved]
    assert 0 < saved[0] < STEPS[kind]
