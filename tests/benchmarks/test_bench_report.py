"""The benchmark report says what was measured, and judges it by the figures it prints."""

import math

import pytest
from bench.__main__ import main
from bench.measuring import rounds
from bench.measuring.contenders import OURS, PEERS, able
from bench.measuring.measure import Sample, measure, summarize
from bench.measuring.promises import Promise, judge
from bench.measuring.report import as_json, markdown
from bench.measuring.results import Section, Table, Verdict
from bench.measuring.states import gpt2_small, many_small


def sample(wall, nbytes=10**9):
    return Sample(wall=wall, cpu=wall / 2, peak=1 << 20, nbytes=nbytes)


def test_a_ratio_is_the_median_of_the_ratios_within_each_round():
    """A slow round is slow for all; only pairs measured side by side may be compared."""
    table = Table(title="save")
    for mine, other in ((1.0, 2.0), (30.0, 60.0), (1.0, 1.0)):
        table.add("mine", sample(mine))
        table.add("other", sample(other))

    assert table.ratio("mine", "other") == pytest.approx(0.5)
    assert table.ratio("other", "mine") == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("value", "limit", "at_most", "holds"),
    [(1.15, 1.15, True, True), (1.16, 1.15, True, False), (0.85, 0.85, False, True), (0.84, 0.85, False, False)],
)
def test_a_verdict_holds_up_to_its_limit(value, limit, at_most, holds):
    assert Verdict(claim="x", value=value, limit=limit, at_most=at_most).holds is holds


@pytest.mark.parametrize(
    ("value", "least", "kept"),
    [(1.5, False, True), (1.501, False, False), (1.5, True, True), (1.499, True, False), (math.nan, False, False)],
)
def test_a_program_ends_with_1_where_a_figure_as_printed_is_beyond_its_bound_or_there_is_none(
    value, least, kept, capsys
):
    promises = [Promise("a figure", 1.0, 1.0), Promise("another", value, 1.5, least)]

    assert judge(promises) == (0 if kept else 1)
    assert capsys.readouterr().out.count("MISSED") == (0 if kept else 1)


def test_the_report_shows_every_contender_target_and_note():
    table = Table(title="durable save", samples={"mine": [sample(2.0)], "other": [sample(1.0)]})
    verdict = Verdict(claim="mine / other", value=2.0, limit=1.0)
    section = Section(title="Part", intro="What it is.", tables=[table], notes=["Third left out"], verdicts=[verdict])

    text = markdown([section], {"processor": "some"}, rounds=1, scale=1.0)

    assert text.index("| other | 1.000 |") < text.index("| mine | 2.000 |")
    assert "| mine / other | 2.00x | at most 1x | FAIL |" in text
    assert "- Third left out" in text
    assert as_json([section], {})["sections"][0]["verdicts"][0]["holds"] is False


def test_a_summary_keeps_the_best_time_and_the_worst_memory():
    found = summarize([sample(2.0), sample(1.0), sample(4.0)])

    assert (found.best, found.median, found.peak) == (1.0, 2.0, 1 << 20)


def test_memory_taken_for_a_moment_is_seen():
    """The peak counts, not what is left afterwards."""
    found = measure(lambda: bytearray(b"x") * (64 << 20), 1)

    assert found.peak >= 60 << 20


def test_the_training_state_at_full_scale_is_gpt2_small_with_two_moments():
    shapes = {name: tuple(tensor.shape) for name, tensor in gpt2_small(0.01).nested["model"].items()}

    assert len(shapes) == 148
    assert shapes["wte.weight"] == (503, 768)


def test_who_would_take_too_long_is_left_out_with_a_reason():
    fit, notes = able([OURS, *PEERS], many_small(20_001, 1))

    assert [one.name for one in fit] == ["model_checkpoint", "safetensors", "DCP", "torch.save"]
    assert notes == ["Orbax left out: takes minutes beyond 20,000 tensors, here are 20,001"]


def test_a_load_that_brings_back_other_bytes_ends_the_benchmark(tmp_path):
    """A contender that is fast because it does nothing must not win."""

    class Idle:
        name, most_tensors = "idle", 10

        def save(self, folder, state):
            (folder / "x").write_bytes(b"x")

        def load(self, folder, live):
            pass

    trial = rounds.Trial(tmp_path / "files", many_small(3, 4), say=lambda text: None)
    trial.save(Idle(), Table(title="save"))

    with pytest.raises(rounds.WrongBytes, match="idle: load did not bring back what was saved"):
        trial.load(Idle(), Table(title="load"), cold=False)


def test_an_unknown_benchmark_is_refused_with_the_known_ones(capsys):
    assert main(["speed"]) == 2
    assert "unknown benchmark 'speed'; there are state, slice, small, million" in capsys.readouterr().err


@pytest.mark.slow
def test_the_catalog_section_runs_at_a_small_scale(tmp_path, capsys):
    main(["catalog", "--scale", "0.02", "--rounds", "1", "--folder", str(tmp_path / "run")])

    assert "at 2,000 / at 1,000 checkpoints" in capsys.readouterr().out


@pytest.mark.slow
def test_the_million_section_runs_at_a_small_scale(tmp_path, capsys):
    assert main(["million", "--scale", "0.001", "--rounds", "1", "--folder", str(tmp_path / "run")]) == 0

    assert "1,000 tensors: manifest" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()
