"""Galois field: GF(2^8) with the polynomial 0x11d, element by element."""

from __future__ import annotations

MOST_COLUMNS = 255  # from there on powers of two come again
_POLYNOMIAL = 0x11D


def _tables() -> tuple[list[int], list[int]]:
    """Powers of two, twice over so that sums of two exponents need no remainder, and their exponents."""
    powers, exponents, value = [0] * 510, [0] * 256, 1
    for exponent in range(255):
        powers[exponent] = powers[exponent + 255] = value
        exponents[value] = exponent
        value = (value << 1) ^ (_POLYNOMIAL if value & 0x80 else 0)
    return powers, exponents


_POWERS, _EXPONENTS = _tables()


def power_of_two(exponent: int) -> int:
    """What column number ``exponent`` counts in Q.

    Example:
        >>> power_of_two(3), power_of_two(8)
        (8, 29)
    """
    return _POWERS[exponent]


def product(a: int, b: int) -> int:
    """The product of two elements.

    Example:
        >>> product(2, 0x80), product(0, 7)
        (29, 0)
    """
    return _POWERS[_EXPONENTS[a] + _EXPONENTS[b]] if a and b else 0


def inverse(a: int) -> int:
    """What ``a`` must be multiplied with to give one.

    Example:
        >>> product(7, inverse(7))
        1
    """
    return _POWERS[255 - _EXPONENTS[a]]
