"""The head of an object is its first bytes, however few it has."""

import pytest

from model_checkpoint.storage.objects.requests.failures import KeyMissing

pytestmark = pytest.mark.s3


@pytest.mark.parametrize("data", [b"", b"abc", b"x" * 10, b"y" * 100], ids=len)
def test_a_head_is_what_there_is_up_to_its_limit(bucket, data):
    bucket.put("one", data)

    assert bucket.read_head("one", 10) == data[:10]
    assert bucket.read_head("one", None) == data


@pytest.mark.parametrize("limit", [10, None])
def test_nothing_has_no_head(bucket, limit):
    with pytest.raises(KeyMissing, match="none"):
        bucket.read_head("none", limit)
