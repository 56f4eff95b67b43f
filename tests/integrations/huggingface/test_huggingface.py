"""What a run of a Trainer says, keeps, maps and refuses."""

import signal

import pytest
import torch
from tests.ground.stored.stored_files import data_file, flip, steps
from tests.integrations.huggingface.hf_training import Failing, make
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback

import model_checkpoint as mc
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.integrations.errors import TrainerUnknown
from model_checkpoint.integrations.huggingface import TrainerRun, trainer_rules

pytestmark = pytest.mark.slow


def broken(root, step=20, **more):
    trainer = make(root, callbacks=[Failing(step)], **more)
    TrainerRun(trainer, root)
    with pytest.raises(KeyError, match="a bug"):
        trainer.train()
    mc.finish_saves(root)


def test_the_best_and_the_last_stay_and_the_best_is_loaded_at_the_end(tmp_path):
    trainer = make(tmp_path / "a", num_train_epochs=5)
    TrainerRun(trainer, tmp_path / "a", keep=[mc.last(1), mc.best("eval_loss", 2)])
    trainer.train()

    best = trainer.state.best_global_step
    found = mc.list_checkpoints(tmp_path / "a")
    assert best in [one.step for one in found]
    assert len(found) <= 3
    assert min(one.metrics["eval_loss"] for one in found) == trainer.state.best_metric
    weights = mc.load(trainer.state.best_model_checkpoint, parts="model")["model"]
    assert all(torch.equal(weights[name], value) for name, value in trainer.model.state_dict().items())


def test_save_total_limit_says_how_many_stay(tmp_path):
    trainer = make(tmp_path / "a", save_total_limit=2, load_best_model_at_end=False)
    TrainerRun(trainer, tmp_path / "a")
    trainer.train()

    assert steps(tmp_path / "a") == [18, 21]


def test_a_damaged_newest_save_is_passed_over_and_said(tmp_path):
    broken(tmp_path / "a")
    assert steps(tmp_path / "a") == [6, 12, 18]
    flip(data_file(tmp_path / "a", 18))

    trainer = make(tmp_path / "a")
    run = TrainerRun(trainer, tmp_path / "a")
    with pytest.warns(mc.CheckpointWarning, match="step-00000018"):
        trainer.train()

    assert (run.resumed_from, run.step) == (12, 21)
    assert "resumed at step 12 (epoch 1, batch 10)" in run.opening
    assert "passing over" in run.opening


def test_a_finished_run_has_nothing_left_to_do_and_goes_on_with_more_epochs(tmp_path):
    def go(epochs):
        trainer = make(tmp_path / "a", num_train_epochs=epochs, load_best_model_at_end=False)
        run = TrainerRun(trainer, tmp_path / "a")
        trainer.train()
        return run.resumed_from, run.step, torch.rand(1), trainer.model.state_dict()

    *first, drawn, weights = go(3)
    *second, again, same = go(3)
    *third, _, _ = go(4)

    assert [*first, *second, *third] == [None, 21, 21, 21, 21, 28]
    assert drawn == again
    assert all(torch.equal(weights[name], same[name]) for name in weights)


def test_a_run_that_stopped_early_stays_stopped(tmp_path):
    def go():
        early = EarlyStoppingCallback(early_stopping_patience=1, early_stopping_threshold=100.0)
        trainer = make(tmp_path / "a", num_train_epochs=30, callbacks=[early])
        run = TrainerRun(trainer, tmp_path / "a")
        trainer.train()
        return run.resumed_from, run.step, early.early_stopping_patience_counter

    assert go() == (None, 12, 1)  # the first evaluation is the best so far, the second is no better by 100
    assert go() == (12, 12, 1)


def test_counters_of_callbacks_come_back(tmp_path):
    def early(patience):
        return EarlyStoppingCallback(early_stopping_patience=patience, early_stopping_threshold=100.0)

    trainer = make(tmp_path / "a", num_train_epochs=30, callbacks=[early(3), Failing(19)])
    TrainerRun(trainer, tmp_path / "a")
    with pytest.raises(KeyError, match="a bug"):
        trainer.train()
    mc.finish_saves(tmp_path / "a")
    trainer = make(tmp_path / "a", num_train_epochs=30, callbacks=[early(3)])
    run = TrainerRun(trainer, tmp_path / "a")
    trainer.train()

    assert (run.resumed_from, run.step) == (18, 24)


def test_the_state_of_an_object_of_the_callers_comes_back(tmp_path):
    trainer, seen = make(tmp_path / "a", num_train_epochs=1), {"batches": 0}
    TrainerRun(trainer, tmp_path / "a", seen=seen)
    seen["batches"] = 5
    trainer.train()
    again = {"batches": 0}
    trainer = make(tmp_path / "a", num_train_epochs=1)
    TrainerRun(trainer, tmp_path / "a", seen=again)
    trainer.train()

    assert again == {"batches": 5}


def test_the_checkpoint_tells_where_the_run_was(tmp_path):
    trainer = make(tmp_path / "a", num_train_epochs=1)
    TrainerRun(trainer, tmp_path / "a")
    trainer.train()

    about = {one.step: one.metadata["run"] for one in mc.list_checkpoints(tmp_path / "a")}
    assert about[6] == {"step": 6, "epoch": 0, "batch": 12, "exact": True, "reasons": []}


def test_an_unknown_version_of_transformers_is_refused_by_name(tmp_path, monkeypatch):
    trainer = make(tmp_path / "a")
    monkeypatch.setattr(trainer_rules.transformers, "__version__", "6.0.1")

    with pytest.raises(TrainerUnknown, match=r"transformers 6\.0\.1 is not known .* known is 5\.22\.x"):
        TrainerRun(trainer, tmp_path / "a")
    assert "train" not in vars(trainer)


def test_a_class_that_changed_what_is_replaced_is_refused_by_name(tmp_path):
    class Own(Trainer):
        def _save_checkpoint(self, model, trial):
            """Saves in its own way."""

    trainer = make(tmp_path / "a")
    trainer.__class__ = Own

    with pytest.raises(TrainerUnknown, match="Own has its own _save_checkpoint"):
        TrainerRun(trainer, tmp_path / "a")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"save_only_model": True, "load_best_model_at_end": False}, "save_only_model=True.*weights alone"),
        ({"ignore_data_skip": True}, "ignore_data_skip=True.*the place in the data"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size=True.*other numbers"),
        ({"enable_jit_checkpoint": True}, "enable_jit_checkpoint=True.*clean boundary"),
    ],
)
def test_arguments_with_which_no_resume_is_exact_are_refused_by_name(tmp_path, option, message):
    with pytest.raises(TrainerUnknown, match=message):
        TrainerRun(make(tmp_path / "a", **option), tmp_path / "a")


def test_two_rules_for_what_stays_are_refused(tmp_path):
    with pytest.raises(OptionInvalid, match="save_total_limit=2 and keep= both"):
        TrainerRun(make(tmp_path / "a", save_total_limit=2), tmp_path / "a", keep=[mc.last(3)])


def test_a_name_of_the_runs_own_and_a_second_run_are_refused(tmp_path):
    trainer = make(tmp_path / "a")
    with pytest.raises(OptionInvalid, match="model: the run saves this by itself"):
        TrainerRun(trainer, tmp_path / "a", model=trainer.model)
    TrainerRun(trainer, tmp_path / "a")
    with pytest.raises(OptionInvalid, match="replaced already"):
        TrainerRun(trainer, tmp_path / "b")


def test_another_place_to_resume_from_is_refused(tmp_path):
    trainer = make(tmp_path / "a")
    TrainerRun(trainer, tmp_path / "a")

    with pytest.raises(OptionInvalid, match="resumes from its own root by itself"):
        trainer.train(resume_from_checkpoint="elsewhere/checkpoint-5")


def test_a_loader_asked_for_besides_the_training_is_the_trainers_own(tmp_path):
    trainer = make(tmp_path / "a")
    TrainerRun(trainer, tmp_path / "a")

    assert len(list(trainer.get_train_dataloader())) == 13


@pytest.mark.parametrize("level", ["warning", "error"])
def test_what_it_goes_on_from_is_said_unless_errors_alone_are_logged(tmp_path, capsys, level):
    said = ""
    for steps_in_all in (3, 4):
        trainer = make(tmp_path / "a", "stream", max_steps=steps_in_all, save_steps=3, log_level=level)
        run = TrainerRun(trainer, tmp_path / "a")
        trainer.train()
        said += f"{run.opening}\n"

    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith(str(tmp_path))]
    assert "resumed at step 3 " in said
    assert lines == ([] if level == "error" else said.splitlines())


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_a_trainer_that_is_told_to_end_after_the_last_step_ends_when_all_is_saved(tmp_path, number, error):
    class Telling(TrainerCallback):
        def on_train_end(self, *_, **__):
            signal.raise_signal(number)

    trainer = make(tmp_path / "run", callbacks=[Telling()], num_train_epochs=1, save_strategy="steps")
    run = TrainerRun(trainer, tmp_path / "run")
    with pytest.raises(error, match="^143$" if error is SystemExit else "^$"):
        trainer.train()

    assert steps(tmp_path / "run")[-1] == run.step == 7
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
