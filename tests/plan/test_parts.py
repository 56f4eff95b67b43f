"""Which leaves are meant by ``parts=`` and ``rename=``."""

import pytest

from model_checkpoint.plan import live_matcher, matcher, renamer


@pytest.mark.parametrize(
    ("parts", "meant", "not_meant"),
    [
        (None, ["", "a", "a.b"], []),
        ("model", ["model", "model.a", "model.a.b"], ["models", "model_a", "a.model", ""]),
        (["model", "step"], ["model.a", "step", "step.x"], ["steps", "optimizer"]),
        ("model.*.bias", ["model.a.bias", "model.a.b.bias"], ["model.bias", "Model.a.bias", "model.a.bias2"]),
        ("layer?", ["layer1"], ["layer", "layer12", "layer1.w"]),
        ("layers[0]", ["layers[0]", "layers[0].w", "layers0"], ["layers[1]", "layers0.w"]),
        ((), [], ["a", ""]),
    ],
)
def test_a_pattern_means_a_leaf_all_below_it_or_a_glob(parts, meant, not_meant):
    wanted = matcher(parts)

    assert [wanted(name) for name in meant] == [True] * len(meant)
    assert [wanted(name) for name in not_meant] == [False] * len(not_meant)


def test_without_a_mapping_names_stay_and_a_function_is_taken_as_it_is():
    assert renamer(None) is None
    assert renamer(str.upper) is str.upper
    assert renamer({})("a.b") == "a.b"


@pytest.mark.parametrize(
    ("saved", "wanted"),
    [
        ("model", "net"),
        ("model.a", "net.a"),
        ("model.head", "out"),
        ("model.head.bias", "out.bias"),
        ("model.header", "net.header"),
        ("models", "models"),
        ("step", "step"),
    ],
)
def test_the_longest_prefix_that_fits_wins_and_only_at_a_dot(saved, wanted):
    assert renamer({"model": "net", "model.head": "out"})(saved) == wanted
    assert renamer({"model.head": "out", "model": "net"})(saved) == wanted


def test_live_names_are_meant_by_the_names_they_had_when_saved():
    wanted = live_matcher(["net", "step"], {"net": "model", "net.head": "out", "old": "new"})

    assert [wanted(name) for name in ("model", "model.w", "out.bias", "step")] == [True] * 4
    assert [wanted(name) for name in ("net", "net.w", "new", "other")] == [False] * 4


def test_one_pattern_as_text_is_one_pattern():
    wanted = live_matcher("net", {"net": "model"})

    assert (wanted("model.w"), wanted("n"), wanted("e")) == (True, False, False)


def test_without_parts_or_rename_the_other_alone_counts():
    assert live_matcher(None, {"a": "b"})("anything")
    assert live_matcher("a", None)("a.b")
    assert not live_matcher("a", None)("b")


def test_beside_a_function_every_live_leaf_is_meant():
    assert live_matcher("model", str.upper)("anything")
