"""Dependencies between layers and the order that follows."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_checkpoint.recompute import DependencyCycle, DependencyGraph


def graph_of(**needs):
    graph = DependencyGraph()
    for layer, needed in needs.items():
        graph.add_dependency(layer, needed)
    return graph


def test_dependencies_add_up():
    graph = graph_of(a=["b"])

    graph.add_dependency("a", ["c", "b"])

    assert graph.get_dependencies("a") == ("b", "c")
    assert graph.get_dependencies("b") == ()


def test_layers_are_ordered_dependencies_first():
    graph = graph_of(d=["b", "c"], b=["a"], c=["a"])

    assert graph.get_topological_order(["d", "c", "b", "a"]) == ["a", "b", "c", "d"]


def test_layers_without_dependencies_are_kept_in_the_given_order():
    graph = graph_of(b=["a"])

    assert graph.get_topological_order(["x", "b", "y", "a"]) == ["x", "a", "b", "y"]


def test_only_the_given_layers_come_back_each_once():
    graph = graph_of(a=["b"], b=["c"])

    assert graph.get_topological_order(["a", "c", "a"]) == ["c", "a"]
    assert graph.get_closure(["a"]) == ["c", "b", "a"]


def test_layers_that_were_not_given_carry_the_restriction_on():
    graph = graph_of(a=["x", "y"], x=["z"], y=["z"], z=["b"])

    assert graph.restrict(["a", "b"]) == {"a": {"b"}, "b": set()}


def test_a_graph_without_a_circle_has_none():
    graph = graph_of(a=["b"], b=["c"], c=["d"])

    assert not graph.has_cycle()
    assert graph.find_cycle() == ()


@pytest.mark.parametrize(
    ("needs", "cycle"),
    [
        ({"a": ["a"]}, ("a", "a")),
        ({"a": ["b"], "b": ["a"]}, ("a", "b", "a")),
        ({"x": ["a"], "a": ["b"], "b": ["c"], "c": ["a"]}, ("a", "b", "c", "a")),
    ],
    ids=["self", "pair", "triangle behind a stem"],
)
def test_a_circle_is_found_and_named(needs, cycle):
    graph = graph_of(**needs)

    assert graph.has_cycle()
    assert graph.find_cycle() == cycle


def test_ordering_layers_in_a_circle_is_an_error_that_names_it():
    graph = graph_of(a=["b"], b=["a"])

    with pytest.raises(DependencyCycle, match=r"in a circle: a -> b -> a. Remove one") as caught:
        graph.get_topological_order(["a", "b"])

    assert isinstance(caught.value, RuntimeError)
    assert caught.value.cycle == ("a", "b", "a")


def test_a_circle_elsewhere_does_not_matter():
    graph = graph_of(a=["b"], b=["a"], d=["c"])

    assert graph.get_topological_order(["d", "c"]) == ["c", "d"]


def test_clear_and_remove_forget():
    graph = graph_of(a=["b"], b=["a"])

    graph.remove("b")
    assert not graph.has_cycle()
    graph.clear()

    assert graph.get_dependencies("a") == ()


@pytest.mark.parametrize("blank", ["", "  ", None], ids=repr)
def test_blank_ids_are_refused(blank):
    graph = DependencyGraph()

    for call in (
        lambda: graph.add_dependency(blank, ["a"]),
        lambda: graph.add_dependency("a", [blank]),
        lambda: graph.get_topological_order([blank]),
    ):
        with pytest.raises(ValueError, match="expected a string that is not blank"):
            call()


def test_what_is_no_list_is_refused():
    graph = DependencyGraph()

    for call in (lambda: graph.add_dependency("a", None), lambda: graph.get_topological_order("abc")):
        with pytest.raises(ValueError, match="expected a list of layer ids"):
            call()


def test_a_chain_far_longer_than_the_stack_is_deep_is_ordered():
    graph = DependencyGraph()
    for index in range(20_000):
        graph.add_dependency(f"{index + 1}", [f"{index}"])

    order = graph.get_topological_order([f"{index}" for index in reversed(range(20_001))])

    assert order[0] == "0"
    assert order[-1] == "20000"
    assert not graph.has_cycle()


def test_layers_between_are_visited_once_however_many_paths_lead_through_them():
    graph = DependencyGraph()
    for index in range(60):  # more paths than anybody could walk
        for layer in (f"a{index}", f"b{index}"):
            graph.add_dependency(layer, [f"a{index + 1}", f"b{index + 1}"])

    assert graph.restrict(["a0", "a60"]) == {"a0": {"a60"}, "a60": set()}


edges = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25)


@given(edges, st.lists(st.integers(0, 9), max_size=10))
def test_order_and_restriction_hold_for_any_graph_without_a_circle(pairs, wanted):
    graph = DependencyGraph()
    for one, other in pairs:
        if one != other:  # the smaller needs the larger: no circle possible
            graph.add_dependency(str(min(one, other)), [str(max(one, other))])
    ids = [str(layer) for layer in wanted]

    order = graph.get_topological_order(ids)
    before = graph.restrict(ids)

    assert sorted(order) == sorted(set(ids))
    for layer in order:
        reachable = set(graph.get_closure([layer])) - {layer}
        assert all(order.index(other) < order.index(layer) for other in reachable & set(order))
        assert before[layer] <= reachable & set(order)
        assert bool(before[layer]) == bool(reachable & set(order))


@given(edges)
def test_a_found_circle_is_one_and_none_found_means_none(pairs):
    graph = DependencyGraph()
    for one, other in pairs:
        graph.add_dependency(str(one), [str(other)])

    cycle = graph.find_cycle()

    if cycle:
        assert cycle[0] == cycle[-1]
        assert all(other in graph.get_dependencies(one) for one, other in pairwise(cycle))
    else:
        assert len(graph.get_topological_order([str(i) for i in range(10)])) == 10
