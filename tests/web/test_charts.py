"""Curves: smoothing goes by distance, and a view that is sent to somebody looks the same there."""

import pytest

pytestmark = pytest.mark.slow

# of a step from 0 to 1 at x = 300, known at every x or at every tenth: how high both smoothed curves are at x = 330
AT_330 = """async (strength) => {
  const { smooth } = await import('/js/chart/curves.js');
  const at = (gap) => {
    const x = Array.from({ length: 600 / gap + 1 }, (_, i) => i * gap);
    return smooth(x, x.map((one) => (one < 300 ? 0 : 1)), strength)[330 / gap];
  };
  return [at(1), at(10)];
}"""
FLAT = """async () => {
  const { smooth } = await import('/js/chart/curves.js');
  return smooth([0, 1, 5, 9, 600], [2, 2, NaN, 2, 2], 0.9);
}"""
BY_NAME = """() => {
  const names = [...document.querySelectorAll('tr.r a.name')].map((one) => one.textContent.toLowerCase());
  return names.length > 5 && names.every((name, i) => !i || names[i - 1] <= name);
}"""


def test_a_sparse_series_is_smoothed_as_far_as_a_dense_one(served, visit):
    """By point, the sparse one would have risen to a tenth of the dense one."""
    tab = visit(served).open("/runs").settle().tab

    dense, sparse = tab.evaluate(AT_330, 0.97)

    assert 0.5 < dense < 0.7
    assert sparse == pytest.approx(dense, abs=0.12)


def test_smoothing_keeps_what_is_level_and_skips_what_is_no_number(served, visit):
    assert visit(served).open("/runs").settle().tab.evaluate(FLAT) == [
        pytest.approx(2.0),
        pytest.approx(2.0),
        None,
        pytest.approx(2.0),
        pytest.approx(2.0),
    ]


def test_axis_and_smoothing_are_in_the_address_and_come_back_with_it(served, big, visit):
    visitor = visit(served).open(f"/run/{big.alive}").settle()
    tab = visitor.tab
    tab.get_by_role("button", name="Run time").click()
    tab.get_by_role("slider", name="Smoothing").fill("0.6")
    tab.wait_for_url(lambda url: "x=time" in url and "smooth=0.6" in url)
    asked = len(visitor.asked)
    tab.reload()
    visitor.settle()

    assert "x=time" in tab.url
    assert tab.locator(".smoothing").inner_text() == "0.60"
    assert tab.get_by_role("button", name="Run time").get_attribute("aria-pressed") == "true"
    series = [url for url in visitor.asked[asked:] if "/series" in url]
    assert series
    assert all("x=time" in url for url in series)


def test_the_order_of_a_list_is_in_the_address_and_comes_back_with_it(served, visit):
    visitor = visit(served).open("/runs").settle()
    tab = visitor.tab
    head = tab.locator("thead th", has_text="Run").first
    assert not tab.evaluate(BY_NAME)
    head.get_by_role("button").click()
    tab.wait_for_function(BY_NAME)
    tab.reload()
    tab.wait_for_function(BY_NAME)

    assert "sort=name" in tab.url
    assert head.get_attribute("aria-sort") == "ascending"
