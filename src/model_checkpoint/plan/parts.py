"""Parts: which leaves a caller means by ``parts=`` and ``rename=``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase


def matcher(parts: str | Sequence[str] | None) -> Callable[[str], bool]:
    """Return a test for leaf names: a pattern means the leaf itself, all that lies under it, or a glob.

    Example:
        >>> wanted = matcher(["model", "optimizer.state.*"])
        >>> wanted("model.wte.weight"), wanted("models.x"), wanted("optimizer.param_groups")
        (True, False, False)
    """
    if parts is None:
        return lambda name: True
    patterns = [parts] if isinstance(parts, str) else list(parts)

    def wanted(name: str) -> bool:
        return any(name == p or name.startswith(f"{p}.") or fnmatchcase(name, p) for p in patterns)

    return wanted


def live_matcher(
    parts: str | Sequence[str] | None, rename: Mapping[str, str] | Callable[[str], str] | None
) -> Callable[[str], bool]:
    """Return a test for the names of live leaves, which are the names after ``rename``.

    A function cannot be run on patterns, so beside one every live leaf is meant.

    Example:
        >>> wanted = live_matcher("net", {"net": "model", "net.head": "out"})
        >>> wanted("model.weight"), wanted("out.bias"), wanted("epoch")
        (True, True, False)
    """
    if parts is None or rename is None:
        return matcher(parts)
    if not isinstance(rename, Mapping):
        return matcher(None)
    patterns = [parts] if isinstance(parts, str) else list(parts)
    moved = [new for old, new in rename.items() if matcher(patterns)(old)]
    return matcher([*map(_by_prefix(rename), patterns), *moved])


def renamer(rename: Mapping[str, str] | Callable[[str], str] | None) -> Callable[[str], str] | None:
    """Return the function from saved names to wanted names; of a mapping, the longest prefix that fits wins.

    Example:
        >>> renamer({"model": "net", "model.head": "net.out"})("model.head.bias")
        'net.out.bias'
    """
    return _by_prefix(rename) if isinstance(rename, Mapping) else rename


def _by_prefix(rename: Mapping[str, str]) -> Callable[[str], str]:
    prefixes = sorted(rename.items(), key=lambda pair: -len(pair[0]))

    def new_name(name: str) -> str:
        for old, new in prefixes:
            if name == old or name.startswith(f"{old}."):
                return new + name[len(old) :]
        return name

    return new_name
