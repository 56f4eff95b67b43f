"""Write the golden checkpoint of the current layout: ``python tests/precision/precision_golden.py`` when it is new.

Those of older layouts were written by the library as it was then, and stay as they are.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch

import model_checkpoint as mc
from model_checkpoint.precision import MixedPrecisionCheckpointManager as Manager
from model_checkpoint.precision import MixedPrecisionOptimizer, MixedPrecisionOptions
from model_checkpoint.precision.checkpoints.tree_codec import LAYOUT

GOLDEN = Path(__file__).parent / "golden"


def make_run():
    """A tiny run of the golden shape."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))
    base = torch.optim.AdamW(model.parameters(), lr=0.01)
    options = MixedPrecisionOptions.for_fp16(initial_loss_scale=512.0, growth_interval=3)
    return model, MixedPrecisionOptimizer(base, options, model=model)


def train_a_little(model, optimizer):
    for step in range(6):
        optimizer.zero_grad()
        loss = model(torch.full((2, 3), 0.5 + step)).square().mean()
        optimizer.backward(loss * 1e8 if step == 2 else loss)
        optimizer.step()


def expect(optimizer):
    """What a reader must find, as plain values."""
    digests = {
        slot.name: hashlib.sha256(slot.master.detach().numpy().tobytes()).hexdigest()
        for slot in optimizer.parameter_table.slots
    }
    moments = {
        slot.name: hashlib.sha256(optimizer.state[slot.master]["exp_avg"].numpy().tobytes()).hexdigest()
        for slot in optimizer.parameter_table.slots
    }
    counts = {
        "step_count": optimizer.step_count,
        "skipped_steps": optimizer.skipped_steps,
        "scale": optimizer.loss_scale,
    }
    return {"masters": digests, "moments": moments, **counts}


def first_layout(optimizer):
    """A tree as layout 1 has it: fourteen flat fields, both weight maps by value."""
    now = optimizer.get_stats().loss_scaler_stats
    return {
        "version": 1,
        "timestamp": "2024-05-01T12:00:00+00:00",
        "master_weights": {slot.name: slot.master.detach().clone() for slot in optimizer.parameter_table.slots},
        "training_weights": {slot.name: slot.param.detach().clone() for slot in optimizer.parameter_table.slots},
        "current_loss_scale": now.current_scale,
        "steps_since_last_overflow": now.growth_tracker,
        "consecutive_overflows": now.consecutive_overflows,
        "total_overflows": now.total_overflows,
        "step_count": optimizer.step_count,
        "has_fallback": optimizer.has_fallback,
        "skipped_steps": optimizer.skipped_steps,
        "options": optimizer.options.to_tree(),
        "base_optimizer_state": optimizer.base_optimizer.state_dict(),
        "metadata": {"precision": "FP16", "version": "1.0"},
    }


def main():
    model, optimizer = make_run()
    train_a_little(model, optimizer)
    if expect(optimizer) != json.loads((GOLDEN / "expected.json").read_text()):
        raise SystemExit("this machine trains the golden run to other bits")
    alone, part = GOLDEN / f"layout{LAYOUT}", GOLDEN / f"layout{LAYOUT}-part"
    Manager.save_checkpoint(Manager.create_checkpoint(optimizer, metadata={"golden": "yes"}), alone)
    mc.save(part, {"optimizer": optimizer}, step=6)
    for folder in (alone, part):
        for leaving in (".staging", ".trash", ".locks"):
            shutil.rmtree(folder / leaving, ignore_errors=True)


if __name__ == "__main__":
    main()
