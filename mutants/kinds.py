"""Kinds: every way a source file can be wrong by one small change, found in its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_SWAPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_SHOWS = frozenset({"__repr__", "_repr_html_"})
_TALK = frozenset({"debug", "info", "warning", "error", "exception", "log"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change: the bytes ``[start, stop)`` of a file replaced."""

    line: int
    start: int
    stop: int
    before: str
    after: str

    def apply(self, source: bytes) -> bytes:
        """The source with the change made."""
        return source[: self.start] + self.after.encode() + source[self.stop :]


def mutants_of(source: bytes) -> list[Mutant]:
    """All mutants of a file that still compile, in the order of their lines."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = [_mutant(source, starts, node, after) for node, after in _changes(ast.parse(source))]
    return sorted((one for one in found if _compiles(one.apply(source))), key=lambda one: (one.start, one.after))


def statement_lines(source: bytes, mutant: Mutant) -> tuple[int, int]:
    """First and last line of the statement a mutant lies in; of one with a body, the lines before that."""
    last = mutant.line + source[mutant.start : mutant.stop].count(b"\n")
    around = [
        one
        for one in ast.walk(ast.parse(source))
        if isinstance(one, ast.stmt) and one.lineno <= mutant.line and last <= one.end_lineno
    ]
    nearest = max(around, key=lambda one: (one.lineno, -one.end_lineno))
    body = getattr(nearest, "body", None)
    return nearest.lineno, max(last, body[0].lineno - 1) if body else nearest.end_lineno


def _mutant(source: bytes, starts: list[int], node: ast.AST, after: str) -> Mutant:
    start = starts[node.lineno - 1] + node.col_offset
    stop = starts[node.end_lineno - 1] + node.end_col_offset
    before = " ".join(source[start:stop].decode().split())
    return Mutant(line=node.lineno, start=start, stop=stop, before=before, after=after)


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _changes(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield nodes and the text to put in their place; what no test should pin down is passed over."""
    for node in _code(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            swapped = ast.Compare(node.left, [_SWAPS[type(node.ops[0])]()], node.comparators)
            yield node, f"({ast.unparse(swapped)})"
        elif isinstance(node, ast.BoolOp):
            yield from _dropped_operands(node)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield node, str(node.value + 1)
            if node.value > 0:
                yield node, str(node.value - 1)
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            yield node.test, f"(not ({ast.unparse(node.test)}))"
        elif isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            yield node, "pass"
        elif isinstance(node, ast.Return) and _is_bool(node.value):
            yield node, f"return {not node.value.value}"  # None would do as well as False
        elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            yield node, "return None"


def _dropped_operands(node: ast.BoolOp) -> Iterator[tuple[ast.AST, str]]:
    for dropped in range(len(node.values)):
        left = node.values[:dropped] + node.values[dropped + 1 :]
        yield node, f"({ast.unparse(left[0] if len(left) == 1 else ast.BoolOp(node.op, left))})"


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Walk what runs: no annotations, no messages of errors and logs, no formatting, no branch for type checkers."""
    for child in _children(node):
        if isinstance(child, ast.JoinedStr) or _is_talk(child) or _is_show(child) or _is_for_types(child):
            continue
        yield child
        if not isinstance(child, ast.Raise):
            yield from _code(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    skipped = {"annotation", "returns", "decorator_list", "bases", "keywords" if isinstance(node, ast.ClassDef) else ""}
    for name, value in ast.iter_fields(node):
        if name not in skipped:
            yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST))


def _is_talk(node: ast.AST) -> bool:
    """Whether it is a call to a logger, or decides only about such calls."""
    if isinstance(node, ast.If):
        return not node.orelse and all(map(_is_talk, node.body))
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _TALK


def _is_show(node: ast.AST) -> bool:
    """Whether it is how an object shows itself to people."""
    return isinstance(node, ast.FunctionDef) and node.name in _SHOWS


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _is_bool(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


__all__ = ["Mutant", "mutants_of", "statement_lines"]
