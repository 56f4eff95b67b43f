"""What Accelerate prepared, killed anywhere and started again, ends as if it had never been interrupted."""

import signal

import accelerate
import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from tests.integrations.accelerate.accelerated_training import BATCHES, EPOCHS, KINDS, body, make, train
from tests.integrations.killing import ended, start, starts_of, told_to_end, unbroken, whole_and_killed
from tests.integrations.trainer_data import Augmented
from torch.utils.data import DataLoader

import model_checkpoint as mc
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.integrations.accelerate import AcceleratedRun, prepared_objects
from model_checkpoint.integrations.errors import TrainerUnknown
from model_checkpoint.integrations.feeding.feed import feed_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory):
    """Import what is imported late, so that the children come to their first save quickly."""
    folder = tmp_path_factory.mktemp("warm")
    train(folder / "a", folder / "a.out", kind="no workers")


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_ends_as_if_it_had_not_been(tmp_path, kind):
    whole, killed, starts = whole_and_killed(train, tmp_path, kills=3, seed=kind, kind=kind, pause=0.01)

    assert killed == whole
    assert max(starts) > 0
    assert (int(whole.split()[2]) < EPOCHS * -(-BATCHES // 2)) is ("half precision" in kind)  # some were skipped
    assert whole.startswith(f"{EPOCHS * (14 if kind == 'stream' else BATCHES)} True ")  # each worker has a last batch
    assert len(mc.list_checkpoints(tmp_path / "killed")) == 2


def test_a_run_that_is_told_to_end_with_its_workers_saves_where_it_stepped_and_goes_on_from_there(tmp_path):
    kind, root, out = "persistent workers", tmp_path / "told", tmp_path / "told.out"
    whole, _ = unbroken(train, tmp_path, kind=kind)

    options = {"kind": kind, "pause": 0.02, "every": 1000}
    assert told_to_end(train, root, out, number=signal.SIGTERM, batches=5, **options) == 143
    [saved] = [one.step for one in mc.list_checkpoints(root)]
    assert ended(start(train, root, out, kind=kind)) == 0

    assert out.read_text() == whole
    assert starts_of(out) == [0, saved]


def test_all_that_was_prepared_or_registered_is_saved_by_name(tmp_path):
    accelerator, _, (model, _, _, loader) = make("no workers")
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for _ in AcceleratedRun(accelerator, tmp_path, data=loader, every=None, progress=False):
        pass

    saved = mc.load(tmp_path)
    assert sorted(saved) == ["accelerator", "model", "optimizer", "registered", "run", "scaler", "scheduler"]
    assert saved["scaler"]["scale"] == 8.0
    assert all(torch.equal(saved["model"][name], value) for name, value in model.state_dict().items())


def test_nothing_is_saved_while_gradients_are_accumulated(tmp_path):
    accelerator, _, (model, optimizer, _, loader) = make("no workers")
    for batch in AcceleratedRun(accelerator, tmp_path, data=loader, every=3, progress=False):
        with accelerator.accumulate(model):
            accelerator.backward(model(batch["x"]).mean())
            optimizer.step()
            optimizer.zero_grad()

    assert sorted(one.step for one in mc.list_checkpoints(tmp_path)) == [4, 8, 12, BATCHES]


def test_the_end_of_the_data_is_told_as_accelerate_tells_it(tmp_path):
    accelerator, _, (_, _, _, loader) = make("no workers")
    run = AcceleratedRun(accelerator, tmp_path, data=loader, progress=False)

    told = [accelerator.gradient_state.end_of_dataloader for _ in run]

    assert told == [False] * (BATCHES - 1) + [True]


@pytest.mark.parametrize("kind", ["stream", "persistent workers"])
def test_a_run_that_was_killed_between_two_epochs_goes_on_with_the_next(tmp_path, kind):
    batches = 14 if kind == "stream" else BATCHES
    for number in range(2):
        accelerator, _, (*trained, loader) = make(kind)
        run = AcceleratedRun(accelerator, tmp_path, data=loader, epochs=2, every=batches, progress=False)
        for batch in run:
            body(accelerator, *trained, batch)
            if number == 0 and run.step == batches:  # saved with nothing left of the first epoch
                break
        mc.finish_saves()

    assert (run.resumed_from, run.step) == (batches, 2 * batches)


def test_the_callers_loader_is_left_as_it_is(tmp_path):
    accelerator, _, (_, _, _, loader) = make("no workers")
    inside = loader.base_dataloader
    for _ in AcceleratedRun(accelerator, tmp_path, data=loader, every=None, progress=False):
        pass

    assert loader.base_dataloader is inside
    assert len(list(loader)) == BATCHES


def test_a_loader_is_not_asked_at_every_batch_for_a_state_that_nobody_reads():
    _, _, (_, _, _, loader) = make("no workers")
    asked = []
    object.__setattr__(loader.base_dataloader, "state_dict", lambda: asked.append(1) or {})

    read = list(feed_for(loader).open(epoch=0, skip=0, base=3))

    assert (len(read), asked) == (BATCHES, [])


class AtOnce(Augmented):
    """Reads the samples of a batch together, as datasets do that fetch from afar."""

    def __getitems__(self, indices):
        assert type(indices) is list
        return [self[index] | {"many": torch.tensor(len(indices))} for index in indices]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_that_reads_many_samples_at_once_may_do_so(workers):
    def read(dataset):
        loader = Accelerator(cpu=True).prepare(DataLoader(dataset, 8, num_workers=workers))
        return list(feed_for(loader).open(epoch=0, skip=0, base=3))

    together, apart = read(AtOnce()), read(Augmented())

    assert [batch["many"].tolist() for batch in together] == [[8] * 8] * 12 + [[3] * 3]
    assert all(torch.equal(one["x"], other["x"]) for one, other in zip(together, apart, strict=True))


def test_an_unknown_version_of_accelerate_is_refused_by_name(monkeypatch):
    accelerator, _, _ = make("no workers")
    monkeypatch.setattr(accelerate, "__version__", "9.1")

    with pytest.raises(TrainerUnknown, match=r"accelerate 9\.1 is not known .* known is 1\.15\.x"):
        prepared_objects(accelerator)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_a_stateful_loader_is_refused_by_name(tmp_path):
    config = DataLoaderConfiguration(use_stateful_dataloader=True)
    accelerator = Accelerator(cpu=True, dataloader_config=config)
    _, loader = accelerator.prepare(torch.nn.Linear(1, 1), DataLoader([1.0, 2.0]))

    with pytest.raises(OptionInvalid, match="use_stateful_dataloader=True does not bring back"):
        AcceleratedRun(accelerator, tmp_path, data=loader)


def test_what_was_not_prepared_or_is_named_twice_is_refused(tmp_path):
    with pytest.raises(OptionInvalid, match="nothing was prepared yet"):
        AcceleratedRun(Accelerator(cpu=True), tmp_path, data=[1, 2])
    accelerator, _, (model, _, _, loader) = make("no workers")
    with pytest.raises(OptionInvalid, match="model=: the accelerator prepared this already"):
        AcceleratedRun(accelerator, tmp_path, data=loader, model=model)
