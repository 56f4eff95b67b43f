"""Two real trainings, by Lightning and by the Trainer of Hugging Face, that leave their checkpoints in a folder."""

import sys
import warnings
from pathlib import Path

import torch
from torch import nn


def by_lightning(folder):
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Net(lightning.LightningModule):
        def __init__(self, width=4):
            super().__init__()
            self.save_hyperparameters()
            self.layer = nn.Linear(width, 1)

        def training_step(self, batch, _):
            loss = self.layer(batch[0]).pow(2).mean()
            self.log("val_loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 4)), batch_size=4)
    kept = ModelCheckpoint(dirpath=folder, monitor="val_loss", save_top_k=-1, filename="{epoch}-{step}-{val_loss:.2f}")
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    lightning.Trainer(max_epochs=2, accelerator="cpu", callbacks=[kept], **quiet).fit(Net(), data)


def by_huggingface(folder):
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    sizes = {"n_layer": 1, "n_head": 1, "n_embd": 8, "vocab_size": 16, "n_positions": 8}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    rows = [{"input_ids": torch.randint(0, 16, (8,)), "labels": torch.randint(0, 16, (8,))} for _ in range(4)]
    how = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=2,
        max_steps=2,
        save_steps=2,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    Trainer(model=model, args=how, train_dataset=rows).train()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    by_lightning(Path(sys.argv[1]) / "lightning")
    by_huggingface(str(Path(sys.argv[1]) / "hf"))
