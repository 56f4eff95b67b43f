"""The report of what fits and what does not says all of it, and no more than a person can read."""

import pytest

from model_checkpoint import plan
from model_checkpoint.plan.report import LoadReport
from model_checkpoint.state import LiveSpecs, Spec


def spec(name, dtype="float32", shape=(2,)):
    return Spec(name, dtype, shape)


def test_ten_lines_of_a_kind_are_shown_in_full():
    lines = LoadReport(missing=[f"w{i}" for i in range(10)]).render().splitlines()

    assert lines == [f"  missing: w{i}" for i in range(10)]


def test_of_eleven_ten_are_shown_and_the_rest_is_counted():
    lines = LoadReport(unexpected=[f"w{i}" for i in range(11)]).render().splitlines()

    assert lines == [*(f"  unexpected: w{i}" for i in range(10)), "  unexpected: and 1 more"]


def test_every_kind_has_its_lines_in_the_words_of_the_caller():
    report = LoadReport(
        missing=["a", "b"],
        unexpected=["c"],
        shapes=[("s", (2,), (3, 1))],
        dtypes=[("d", "float32", "bfloat16")],
        suggestions=[("b", "c")],
    )

    assert report.render().splitlines() == [
        "  missing: a",
        "  missing: b (nearest: c)",
        "  unexpected: c",
        "  shape: s: saved [2], live [3, 1]",
        "  dtype: d: saved float32, live bfloat16",
    ]


@pytest.mark.parametrize(
    ("report", "fits", "clashes"),
    [
        (LoadReport(), True, False),
        (LoadReport(missing=["a"]), False, False),
        (LoadReport(unexpected=["a"]), False, False),
        (LoadReport(shapes=[("a", (1,), (2,))]), False, True),
        (LoadReport(dtypes=[("a", "int8", "int16")]), False, True),
    ],
)
def test_any_difference_means_no_fit_and_shapes_and_dtypes_clash(report, fits, clashes):
    assert (report.fits, report.clashes) == (fits, clashes)


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (LoadReport(idle_renames=["x"]), ["not all of it fits:", "  rename= has a name that fits nothing: x"]),
        (LoadReport(unexpected=["u"]), ["not all of it fits:", "  in the checkpoint, not loaded: u"]),
        (LoadReport(passed_over=[("s2", "torn")]), ["it is not the checkpoint asked for:", "  passed over: s2: torn"]),
    ],
    ids=["renames", "leaves", "another checkpoint"],
)
def test_a_load_that_went_through_tells_what_it_did_not_take(report, told):
    assert not report.complete
    assert report.tell().splitlines() == [f": loaded, but {told[0]}", *told[1:]]
    assert "not all of it fits" in report._repr_html_()
    assert "complete" in LoadReport(checkpoint="c")._repr_html_()


@pytest.mark.parametrize(
    "changed", [spec("b", shape=(3,)), spec("b", dtype="int8"), spec("c")], ids=["shape", "dtype", "name"]
)
def test_one_leaf_that_differs_among_equal_ones_is_found(changed):
    assert plan.compare([spec("a"), spec("b")], LiveSpecs([spec("a"), spec("b")])) == LoadReport()
    assert not plan.compare([spec("a"), changed], LiveSpecs([spec("a"), spec("b")])).fits


def test_the_order_of_leaves_is_no_difference():
    assert plan.compare([spec("a"), spec("b")], LiveSpecs([spec("b"), spec("a")])).fits


def test_what_is_said_to_be_unmet_or_unasked_is_told_even_where_all_leaves_agree():
    report = plan.compare([spec("a")], LiveSpecs([spec("a")]), unmet=["m"], unasked=["u"])

    assert (report.missing, report.unexpected) == (["m"], ["u"])
    assert plan.compare([spec("a")], LiveSpecs([spec("a")]), unasked=["u"]).unexpected == ["u"]


def test_an_open_name_without_a_dot_welcomes_that_leaf_alone_on_both_sides():
    saved = [spec("state"), spec("state.a")]

    assert plan.compare(saved, LiveSpecs([], ["state"])).unexpected == ["state.a"]
    assert plan.compare([], LiveSpecs([spec("state"), spec("other")], ["state"])).missing == ["other"]
    assert plan.compare([], LiveSpecs([spec("part.a"), spec("part")], ["part."])).missing == ["part"]


def test_the_nearest_name_is_looked_for_only_where_it_is_near():
    far = plan.compare([spec("zzzz")], LiveSpecs([spec("weight")]))
    near = plan.compare([spec("weights"), spec("zzzz")], LiveSpecs([spec("weight")]))

    assert far.suggestions == []
    assert near.suggestions == [("weight", "weights")]


def test_suggestions_are_made_for_the_lines_that_are_shown():
    saved = [spec(f"layer{i:02d}.weights") for i in range(12)]
    live = LiveSpecs([spec(f"layer{i:02d}.weight") for i in range(12)])

    assert [name for name, _ in plan.compare(saved, live).suggestions] == [f"layer{i:02d}.weight" for i in range(10)]


def test_beyond_two_thousand_names_no_nearest_is_looked_for():
    padding = [spec(f"{i:05d}#") for i in range(1999)]

    within = plan.compare([*padding, spec("weights")], LiveSpecs([spec("weight")]))
    beyond = plan.compare([*padding, spec("0#"), spec("weights")], LiveSpecs([spec("weight")]))

    assert within.suggestions == [("weight", "weights")]
    assert beyond.suggestions == []
