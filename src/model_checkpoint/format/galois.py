"""Galois: the sums P and Q of a stripe, and how lost columns follow from them.

P is the exclusive or of all columns, Q the sum of 2^i times column i in GF(2^8). One sum makes up for one lost column,
both for two. In C where that was compiled, else by NumPy; the bytes are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from model_checkpoint.format.galois_field import inverse, power_of_two, product

try:
    from model_checkpoint.format._galois import add_multiple as add_multiple
    from model_checkpoint.format._galois import add_up as add_up

    COMPILED = True
except ImportError:  # installed without a compiler
    from model_checkpoint.format.galois_words import add_multiple as add_multiple
    from model_checkpoint.format.galois_words import add_up as add_up

    COMPILED = False


class TooManyLost(ValueError):
    """More columns of a stripe are lost than its sums make up for."""


def lost_columns(
    columns: Sequence[memoryview | None], p: memoryview | None, q: memoryview | None
) -> dict[int, memoryview]:
    r"""The columns that are None, by number, from the others and the sums at hand.

    Raises:
        TooManyLost: there are fewer sums than lost columns.

    Example:
        >>> columns = [memoryview(bytes([i, 2 * i])) for i in range(4)]
        >>> p, q = memoryview(bytearray(2)), memoryview(bytearray(2))
        >>> add_up(columns, p, q)
        >>> {i: bytes(column) for i, column in lost_columns([None, columns[1], columns[2], None], p, q).items()}
        {0: b'\x00\x00', 3: b'\x03\x06'}
    """
    lost = [i for i, column in enumerate(columns) if column is None]
    sums = [one for one in (p, q) if one is not None]
    if len(lost) > len(sums):
        raise TooManyLost(f"{len(lost)} columns of a stripe are lost, {len(sums)} sums are left")
    if not lost:
        return {}
    first, second = _empty(len(sums[0])), _empty(len(sums[0]))
    add_up(columns, first, second)
    for known, rest in ((p, first), (q, second)):
        if known is not None:
            add_multiple(known, 1, rest)  # what the lost ones add to the sum
    if len(lost) == 2:
        return _both(lost[0], lost[1], first, second)
    if p is not None:
        return {lost[0]: first}
    found = _empty(len(second))
    add_multiple(second, inverse(power_of_two(lost[0])), found)
    return {lost[0]: found}


def _both(low: int, high: int, first: memoryview, second: memoryview) -> dict[int, memoryview]:
    """Two columns a and b, by a + b and 2^low a + 2^high b."""
    divisor = inverse(power_of_two(low) ^ power_of_two(high))
    a = _empty(len(first))
    add_multiple(first, product(power_of_two(high), divisor), a)
    add_multiple(second, divisor, a)
    add_multiple(a, 1, first)
    return {low: a, high: first}


def _empty(size: int) -> memoryview:
    return memoryview(bytearray(size))
