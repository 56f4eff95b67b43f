"""The hooks in which Accelerate and Lightning let their checkpoints be written through the plug."""

import warnings

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

import model_checkpoint as mc
from model_checkpoint.integrations.dcp import StorageReader, StorageWriter

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:torch.distributed is")]  # DCP without a group


def test_what_accelerate_would_save_goes_through_the_plug(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model = accelerator.prepare(torch.nn.Linear(3, 2))
    truth = {name: value.clone() for name, value in model.state_dict().items()}

    def save(models, weights, folder):
        state = {"model": get_model_state_dict(models[0])}
        dcp.save(state, storage_writer=StorageWriter(tmp_path / "run", step=5), no_dist=True)
        weights.clear()  # so that Accelerate writes none of them itself; ``models`` are its own

    def load(models, folder):
        state = {"model": get_model_state_dict(models[0])}
        dcp.load(state, storage_reader=StorageReader(tmp_path / "run", step=5), no_dist=True)
        set_model_state_dict(models[0], state["model"])
        models.clear()

    accelerator.register_save_state_pre_hook(save)
    accelerator.register_load_state_pre_hook(load)
    accelerator.save_state(str(tmp_path / "accelerate"))
    with torch.no_grad():
        model.weight.zero_()
    accelerator.load_state(str(tmp_path / "accelerate"))

    assert all(torch.equal(value, truth[name]) for name, value in model.state_dict().items())
    assert not list((tmp_path / "accelerate").glob("*.safetensors"))
    assert mc.verify(tmp_path / "run")[0].ok
    assert torch.equal(mc.load(tmp_path / "run")["model"]["weight"], truth["weight"])


def test_what_lightning_would_save_goes_through_the_plug(tmp_path):
    pl = pytest.importorskip("lightning.pytorch")
    from lightning.fabric.plugins import CheckpointIO

    class Plugged(CheckpointIO):
        """Tensors through DCP; the path of Lightning names the checkpoint."""

        def save_checkpoint(self, checkpoint, path, storage_options=None):
            state = {"model": checkpoint["state_dict"]}
            writer = StorageWriter(tmp_path / "run", step=checkpoint["global_step"])
            dcp.save(state, storage_writer=writer, no_dist=True)

        def load_checkpoint(self, path, *args, **kwargs):
            raise AssertionError("not asked for here")

        def remove_checkpoint(self, path):
            mc.delete(tmp_path / "run")

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(3, 1)

        def training_step(self, batch, index):
            return self.net(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module, quiet = Module(), {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        max_steps=2,
        accelerator="cpu",
        default_root_dir=tmp_path,
        plugins=[Plugged()],
        enable_checkpointing=False,
        **quiet,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(module, torch.utils.data.DataLoader(torch.ones(4, 3), batch_size=2))
        trainer.save_checkpoint(tmp_path / "last.ckpt")

    state = {"model": {name: torch.zeros_like(value) for name, value in module.state_dict().items()}}
    dcp.load(state, storage_reader=StorageReader(tmp_path / "run", step=2), no_dist=True)
    assert all(torch.equal(value, module.state_dict()[name]) for name, value in state["model"].items())
    assert [info.step for info in mc.list_checkpoints(tmp_path / "run")] == [2]
