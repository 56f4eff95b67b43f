"""What a program chooses of how numbers are computed is the same after a resume, or is named."""

import os

import pytest
import torch
from tests.integrations.around.around_scenes import Scene, ended

import model_checkpoint as mc

FLOAT, MATMUL = torch.get_default_dtype(), torch.get_float32_matmul_precision()


def choose_nothing():
    torch.set_default_dtype(FLOAT)
    torch.set_float32_matmul_precision(MATMUL)
    torch.use_deterministic_algorithms(False)
    torch.set_flush_denormal(False)


@pytest.fixture(autouse=True)
def as_it_was():
    """Nothing that one test chooses is left for the next."""
    yield
    choose_nothing()


CHOICES = {
    "torch.set_default_dtype was torch.float64, is torch.float32": lambda: torch.set_default_dtype(torch.float64),
    "torch.set_float32_matmul_precision was medium": lambda: torch.set_float32_matmul_precision("medium"),
    "torch.use_deterministic_algorithms was True": lambda: torch.use_deterministic_algorithms(True),
    "whether denormal numbers are kept (torch.set_flush_denormal) was False": lambda: torch.set_flush_denormal(True),
}


def train(scene, choose):
    for batch in scene.run():
        if scene.made.step == 1:
            choose()
        scene.step(batch)
    return scene


def cut(root, choose):
    with pytest.raises(KeyError, match="a bug"):
        train(Scene(root, end=5), choose)
    mc.finish_saves(root)


@pytest.mark.parametrize("said", CHOICES)
def test_what_a_program_chose_while_it_ran_is_named_unless_it_is_chosen_again(tmp_path, said):
    cut(tmp_path, CHOICES[said])
    choose_nothing()

    for stop in (4, None):
        scene = Scene(tmp_path)
        run = scene.run()
        if stop is None:
            CHOICES[said]()  # after the run was made, and before its loop
        for _ in run:
            if run.step == stop:
                break
        assert (said in " ".join(run.exact or ())) if stop else run.exact is True


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_CBWR"])
def test_a_variable_that_decides_how_numbers_are_computed_is_named(tmp_path, monkeypatch, name):
    monkeypatch.delenv(name, raising=False)
    cut(tmp_path, lambda: None)
    monkeypatch.setenv(name, "3")

    assert os.environ[name] == "3"
    assert Scene(tmp_path).run().exact == (f"{name} was not set, is 3",)


def test_what_is_chosen_alike_is_no_reason(tmp_path):
    torch.set_float32_matmul_precision("medium")

    whole, again = ended(lambda scene: train(scene, lambda: None), tmp_path)
    assert (again.weights, again.made.exact) == (whole.weights, True)
