"""A tree that a manifest should not have is looked at without an error of Python's."""

from types import SimpleNamespace

import pytest

from model_checkpoint.distributed.dcp_keys.saved_items import _is_tensor
from model_checkpoint.distributed.moving.live_parts import _keys


@pytest.mark.parametrize("number", [-1, 1, 2])
def test_an_array_that_is_not_there_is_no_tensor(number):
    manifest = SimpleNamespace(entries=[SimpleNamespace(kind="torch")])

    assert _is_tensor(["a", 0], manifest)
    assert not _is_tensor(["a", number], manifest)


@pytest.mark.parametrize("node", [[], None, "d", ["l", []], ["m", "a", "b", []]])
def test_what_is_no_mapping_has_no_keys(node):
    assert _keys(["d", ["a", 1, "b", 2]]) == _keys(["m", "a", "b", ["d", ["a", 1, "b", 2]]]) == ["a", "b"]
    assert _keys(node) == ()
