"""A line of a spool proves itself whole: what was cut or changed is never taken for a record."""

from hypothesis import given, settings
from hypothesis import strategies as st

from model_checkpoint.tracking.spool_lines import decode_lines, encode_line

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
payloads = st.dictionaries(st.text(), plain, max_size=4)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.text(), payloads), max_size=5))
def test_every_plain_record_comes_back_as_it_was(records):
    text = decode_lines(b"".join(encode_line(kind, payload) for kind, payload in records))

    assert [(line.kind, line.payload) for line in text.lines] == records
    assert text.damaged == ()


@settings(max_examples=50)
@given(st.lists(payloads, min_size=1, max_size=4), st.data())
def test_a_cut_loses_only_the_line_it_hits(records, data):
    lines = [encode_line("k", payload) for payload in records]
    whole = b"".join(lines)
    cut = data.draw(st.integers(0, len(whole)))

    text = decode_lines(whole[:cut])

    expected = [i for i in range(len(lines)) if sum(map(len, lines[: i + 1])) <= cut]
    assert [line.payload for line in text.lines] == [records[i] for i in expected]
    assert text.damaged == ()
    assert text.whole == sum(len(lines[i]) for i in expected)


@settings(max_examples=50)
@given(st.lists(payloads, min_size=1, max_size=4), st.data())
def test_a_flipped_bit_is_never_taken_for_a_record(records, data):
    whole = bytearray(b"".join(encode_line("k", payload) for payload in records))
    at = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[at // 8] ^= 1 << at % 8

    text = decode_lines(bytes(whole))

    known = [{"k": payload} for payload in records]
    assert all({line.kind: line.payload} in known for line in text.lines)
    assert len(text.lines) < len(records)
    assert text.damaged or text.whole < len(whole)
