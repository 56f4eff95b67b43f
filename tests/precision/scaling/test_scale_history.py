"""Scalers of other libraries continue here, and the timeline of the scale is kept and drawn."""

import math
import re
import sys

import pytest
import torch
from tests.precision.precision_models import build, loss_of, wrap

from model_checkpoint.precision import (
    MixedPrecisionOptions,
    ScaleEvent,
    ScaleTimeline,
    from_tree,
    import_scaler_state,
    to_tree,
)
from model_checkpoint.precision.errors import InvalidArgument


class DeepSpeedScaler:
    def __init__(self):
        self.cur_scale, self.cur_iter, self.last_overflow_iter = 4096.0, 120, 19
        self.scale_factor, self.scale_window, self.delayed_shift, self.cur_hysteresis = 2.0, 30, 2, 1


@pytest.mark.parametrize(
    ("foreign", "source", "scale", "tracker"),
    [
        ({"loss_scaler0": {"loss_scale": 256.0, "unskipped": 9}}, "Apex amp", 256.0, 9),
        ({"scale": torch.tensor([64.0]), "growth_tracker": 5, "hysteresis_tracker": 2}, "Megatron", 64.0, 5),
        (DeepSpeedScaler(), "DeepSpeed", 4096.0, 10),
        (vars(DeepSpeedScaler()), "DeepSpeed", 4096.0, 10),
    ],
)
def test_scalers_of_other_libraries_are_imported(foreign, source, scale, tracker):
    imported = import_scaler_state(foreign)

    assert (imported.source, imported.state.scale, imported.state.growth_tracker) == (source, scale, tracker)


@pytest.mark.parametrize(
    ("foreign", "state", "options"),
    [
        ({"loss_scaler0": {"loss_scale": 8.0, "unskipped": 9}}, (9, 1, 9), {}),
        ({"scale": 8.0, "growth_tracker": 5, "hysteresis_tracker": 2}, (5, 2, 5), {}),
        ({"scale": 8.0, "growth_tracker": 5, "hysteresis_tracker": 0}, (5, 1, 5), {}),
        (vars(DeepSpeedScaler()), (10, 1, 100), {"growth_interval": 30, "hysteresis": 2, "backoff_factor": 0.5}),
        ({**vars(DeepSpeedScaler()), "cur_iter": 19}, (0, 1, 0), {"growth_factor": 2.0}),
        ({**vars(DeepSpeedScaler()), "cur_iter": 21, "cur_hysteresis": 2}, (1, 2, 1), {}),
    ],
)
def test_counts_of_other_libraries_go_on_here(foreign, state, options):
    imported = import_scaler_state(foreign)

    one = imported.state
    assert (one.growth_tracker, one.hysteresis_left, one.steps_since_overflow) == state
    assert (one.consecutive_overflows, one.total_overflows, one.floor_hits) == (0, 0, 0)
    assert {name: imported.options[name] for name in options} == options


def test_a_torch_grad_scaler_continues_here_with_the_same_decisions():
    theirs = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=5)
    parameter = torch.nn.Parameter(torch.zeros(1))
    base = torch.optim.SGD([parameter], lr=0.0)

    def one(overflow):
        theirs.scale(torch.zeros(()))
        parameter.grad = torch.tensor([math.inf if overflow else 1.0])
        theirs.step(base)
        theirs.update()

    for overflow in (False, True, False, False):
        one(overflow)
    imported = import_scaler_state(theirs.state_dict())
    ours = wrap(build(), chosen=MixedPrecisionOptions.for_fp16(**imported.options)).scaler
    ours.restore_state(imported.state)

    for overflow in (False, False, False, True, False):
        one(overflow)
        ours.update_scale(overflow)
        assert (ours.current_scale, ours.growth_tracker) == (theirs.get_scale(), theirs.state_dict()["_growth_tracker"])


def test_unknown_scalers_and_several_apex_losses_are_refused():
    with pytest.raises(InvalidArgument, match=r"has fields \['volume'\], which no known library writes"):
        import_scaler_state({"volume": 11})
    with pytest.raises(InvalidArgument, match="one per loss"):
        import_scaler_state({f"loss_scaler{i}": {"loss_scale": 1.0, "unskipped": 0} for i in range(2)})


def test_the_timeline_is_kept_in_the_checkpoint_and_drawn(run, checkpoint, tmp_path):
    _, optimizer = run
    timeline = ScaleTimeline()
    timeline.load_tree(from_tree(to_tree(checkpoint)).timeline)

    svg, png, text = (timeline.plot(tmp_path / f"scale.{kind}") for kind in ("svg", "png", "txt"))

    assert [(e.step, e.event) for e in timeline] == [(3, "backed_off")]
    assert list(timeline) == list(optimizer.session.timeline)
    assert "backed_off" in svg.read_text()
    assert svg.read_text().count("<circle") == 1
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "2^9" in text.read_text()
    with pytest.raises(InvalidArgument, match=r"cannot draw '.jpg'"):
        timeline.plot(tmp_path / "scale.jpg")


def timeline_of(*events):
    timeline = ScaleTimeline()
    for step, scale, event in events:
        timeline.add(ScaleEvent(step=step, scale=scale, event=event, detail="w"))
    return timeline


MOVES = timeline_of((2, 1024.0, "backed_off"), (7, 2048.0, "grew"), (12, 1536.0, "trusted"))


def test_a_drawing_has_the_scale_as_a_staircase_and_a_dot_for_each_event():
    drawn = MOVES.to_svg()

    assert 'viewBox="0 0 720 280"' in drawn
    assert re.findall(r'<path d="(.*?)"', drawn) == ["M48.0,252.0 L376.0,252.0 L376.0,16.0 L704.0,16.0 L704.0,113.9"]
    assert re.findall(r'<circle cx="(.*?)" cy="(.*?)" r="3" fill="(.*?)"><title>(.*?)</title>', drawn) == [
        ("48.0", "252.0", "#c0392b", "step 2: backed_off at 2^10 w"),
        ("376.0", "16.0", "#2a7f3f", "step 7: grew at 2^11 w"),
        ("704.0", "113.9", "#555", "step 12: trusted at 1536 w"),
    ]
    assert re.findall(r'<text x="(\d+)" y="(.*?)".*?>(.*?)</text>', drawn) == [
        ("4", "256.0", "2^10"),
        ("4", "20.0", "2^11"),
        ("48", "272", "step 2"),
        ("712", "272", "step 12"),
    ]


def test_a_drawing_of_one_event_or_none_has_room_too():
    assert re.findall(r'<path d="(.*?)"', timeline_of((5, 4.0, "grew")).to_svg()) == ["M48.0,252.0"]
    assert re.findall(r">(2\^.*?)<", timeline_of((5, 4.0, "grew")).to_svg()) == ["2^2", "2^3"]
    assert '<text x="48" y="140.0">no scale events</text>' in ScaleTimeline().to_svg()


@pytest.mark.parametrize(("highest", "stride"), [(7, 1), (15, 1), (16, 2), (17, 2), (24, 3)])
def test_a_drawing_names_so_few_powers_that_they_can_be_read(highest, stride):
    drawn = timeline_of((1, 1.0, "backed_off"), (2, 2.0**highest, "grew")).to_svg()

    assert re.findall(r">2\^(\d+)<", drawn) == [str(power) for power in range(0, highest + 1, stride)]


def test_lines_of_text_tell_step_scale_event_and_detail():
    assert MOVES.to_text().splitlines() == [
        "step         2  scale 2^10       backed_off  w",
        "step         7  scale 2^11             grew  w",
        "step        12  scale 1536          trusted  w",
    ]


def test_a_picture_has_the_axes_steps_and_dots_of_the_events(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    figures, save = [], Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, path: figures.append(figure) or save(figure, path))
    picture = MOVES.plot(tmp_path / "scale.png").read_bytes()
    (axes,) = figures[0].axes
    (line,), (dots,) = axes.lines, axes.collections

    assert [int.from_bytes(picture[start : start + 4], "big") for start in (16, 20)] == [720, 280]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "loss scale")
    assert (axes.get_yscale(), axes.yaxis.get_transform().base) == ("log", 2)
    assert (line.get_xydata().tolist(), line.get_drawstyle()) == ([[2, 1024], [7, 2048], [12, 1536]], "steps-post")
    assert (dots.get_offsets().tolist(), dots.get_sizes().tolist()) == ([[2, 1024], [7, 2048], [12, 1536]], [12])
    assert line.get_linewidth() == 1
    assert axes.get_tightbbox().xmin >= 0  # the labels are within the picture
    assert ScaleTimeline().plot(tmp_path / "none.png").exists()


def test_a_timeline_keeps_1024_events_unless_told_otherwise():
    timeline = ScaleTimeline()

    for step in range(1025):
        timeline.add(ScaleEvent(step=step, scale=2.0, event="grew"))

    assert (len(timeline), next(iter(timeline)).step) == (1024, 1)


def test_a_picture_shows_what_happened_at_each_step(tmp_path):
    def painted(event):
        timeline = ScaleTimeline()
        for step in (1, 2, 3):
            timeline.add(ScaleEvent(step=step, scale=4.0, event=event if step == 2 else "grew"))
        return timeline.plot(tmp_path / "scale.png").read_bytes()

    assert painted("grew") != painted("fallback")


def test_a_picture_without_matplotlib_is_refused_with_a_cure(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    with pytest.raises(InvalidArgument, match=r"a PNG needs matplotlib\. Install it, or choose \.svg"):
        ScaleTimeline().plot(tmp_path / "scale.png")


def test_a_bad_loss_and_a_nan_that_no_scale_explains_are_on_the_timeline():
    model = build()
    optimizer = wrap(model)
    optimizer.backward(loss_of(model, 0) * math.nan)
    optimizer.step()
    optimizer.fallback_to_fp32()
    optimizer.zero_grad()
    optimizer.backward(loss_of(model, 1))
    model.mix.weight.grad[0, 0] = math.nan
    optimizer.step()

    assert [(e.step, e.event, e.detail) for e in optimizer.session.timeline] == [
        (1, "bad_loss", "embed.weight"),
        (1, "fallback", "groups 0"),
        (2, "nonfinite_fp32", "mix.weight"),
    ]


def test_the_timeline_keeps_only_the_latest_events():
    timeline = ScaleTimeline(capacity=2)

    for step in range(5):
        timeline.add(ScaleEvent(step=step, scale=3.0, event="grew", detail="<&>"))

    assert [event.step for event in timeline] == [3, 4]
    assert "&lt;&amp;&gt;" in timeline.to_svg()
    assert "no scale events" in ScaleTimeline().to_svg()
