"""Module joiner: modules that import each other, as one file, so that a browser asks once and not fifty times.

Each module becomes a function that is called when first asked for and returns what the module exports; an import takes
from it. That is what a browser does with the forms of import and export below, in the same order; others are refused.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_IMPORT = re.compile(r"^import (?:(?P<default>\w+) from |\{(?P<names>[\w\s,]+)\} from |)'(?P<path>\.[^']+)';$", re.M)
_EXPORT = re.compile(r"^export (?P<default>default )?(?=(?:async )?(?:function|const) (?P<name>\w+)\b)", re.M)
_LATER = re.compile(r"\bimport\('(?P<path>\.[^']+)'\)")
_OTHER = re.compile(r"^(?:import|export|await)\b.*|\bimport[.(].*|\$(?:own|made|take|later|apart\d)\b.*", re.M)
_REGISTRY = """\
export const $own = {}, $made = {};
export const $take = (path) => ($made[path] ??= $own[path]());
const $later = async (path) => $take(path);
"""


@dataclass(frozen=True, slots=True)
class JoinedModule:
    """One file as it is sent."""

    text: str
    imports: tuple[str, ...]  # files that stay apart


class ModuleUnjoinable(ValueError):
    """A module has a form of import or export that the joiner does not know."""


def join_modules(modules: Mapping[str, str], entry: str, along: Sequence[str] = ()) -> dict[str, JoinedModule]:
    """What to send for ``entry``, and for each module that is imported while it runs, in place of its own text.

    Args:
        modules: Texts by path. What they import besides stays a file of its own.
        entry: The module the page begins with.
        along: Modules imported while it runs that come with it.

    Example:
        >>> texts = {"/a.js": "import { b } from './b.js';", "/b.js": "export const b = () => 1;"}
        >>> print(join_modules(texts, "/a.js")["/a.js"].text.partition("/a.js'")[2])
        ] ??= (() => {
        const { b } = $take('/b.js');
        return {};
        });
        $take('/a.js');
        <BLANKLINE>

    Raises:
        ModuleUnjoinable: A module imports in a circle or what is not exported, or has an unknown form.
    """
    graph = _Modules(modules)
    first = graph.reached(entry, *along)
    sent = {entry: graph.file(entry, first, first, head=_REGISTRY, end=f"$take('{entry}');\n")}
    for page in sorted(graph.opened() - {*first}):
        mine = [one for one in graph.reached(page) if one not in first]
        head = f"import {{ $own, $take }} from '{_relative(page, entry)}';\n"
        sent[page] = graph.file(page, mine, first, head=head, end=f"export default $take('{page}').default;\n")
    return sent


class _Modules:
    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._exports = {path: _exports(text) for path, text in texts.items()}
        self._imports = {path: _named(_IMPORT, path, text) for path, text in texts.items()}
        for path, text in texts.items():
            known = _LATER.sub("", _EXPORT.sub("", _IMPORT.sub("", text)))
            if (found := _OTHER.search(known)) is not None:
                raise ModuleUnjoinable(f"{path}: {found[0]!r} is no form that can be joined.")

    def opened(self) -> set[str]:
        """What is imported while something runs."""
        return {one for path, text in self._texts.items() for one in _named(_LATER, path, text)}

    def reached(self, *starts: str) -> list[str]:
        """Modules, each behind all that it imports."""
        done: dict[str, bool] = {}  # False while what it imports is looked at

        def visit(path: str) -> None:
            if path not in self._texts or done.get(path):
                return
            if path in done:
                raise ModuleUnjoinable(f"{path}: imports itself by way of others.")
            done[path] = False
            for one in self._imports[path]:
                visit(one)
            del done[path]
            done[path] = True  # behind them

        for start in starts:
            visit(start)
        return list(done)

    def file(self, file: str, members: Sequence[str], first: Sequence[str], *, head: str, end: str) -> JoinedModule:
        """These modules as functions in one file; what else they import, the file imports."""
        apart = sorted({one for path in members for one in self._imports[path]} - {*self._texts})
        names = {path: f"$apart{place}" for place, path in enumerate(apart)}
        imports = "".join(f"import * as {names[path]} from '{_relative(file, path)}';\n" for path in apart)
        body = "".join(self._function(file, path, first, names) for path in members)
        return JoinedModule(imports + head + body + end, tuple(apart))

    def _function(self, file: str, path: str, first: Sequence[str], apart: Mapping[str, str]) -> str:
        def taken(found: re.Match[str]) -> str:
            target = _absolute(path, found["path"])
            source = apart.get(target, f"$take('{target}')")
            wanted = _wanted(found)
            if target in self._exports and (missing := {*wanted} - {*self._exports[target]}):
                raise ModuleUnjoinable(f"{path}: {target} does not export {', '.join(sorted(missing))}.")
            names = ", ".join(f"{name}: {own}" if name != own else name for name, own in wanted.items())
            return f"const {{ {names} }} = {source};" if wanted else f"{source};"

        def later(found: re.Match[str]) -> str:
            target = _absolute(path, found["path"])
            return f"$later('{target}')" if target in first else f"import('{_relative(file, target)}')"

        body = _EXPORT.sub("", _LATER.sub(later, _IMPORT.sub(taken, self._texts[path])))
        given = ", ".join(f"{name}: {own}" if name != own else name for name, own in self._exports[path].items())
        # in brackets, so that a browser compiles it at once: it will be called at once
        return f"$own['{path}'] ??= (() => {{\n{body.rstrip()}\nreturn {{{f' {given} ' if given else ''}}};\n}});\n"


def _exports(text: str) -> dict[str, str]:
    """What a module exports, by the name others know it by."""
    return {"default" if one["default"] else one["name"]: one["name"] for one in _EXPORT.finditer(text)}


def _named(form: re.Pattern[str], path: str, text: str) -> list[str]:
    """The modules that a form names, in their order."""
    return [_absolute(path, one["path"]) for one in form.finditer(text)]


def _wanted(found: re.Match[str]) -> dict[str, str]:
    """What an import asks for, with the names it gives them."""
    if found["default"]:
        return {"default": found["default"]}
    words = [one.split() for one in (found["names"] or "").split(",") if one.strip()]
    return {one[0]: one[-1] for one in words}


def _absolute(path: str, relative: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), relative))


def _relative(path: str, target: str) -> str:
    way = posixpath.relpath(target, posixpath.dirname(path))
    return way if way.startswith(".") else f"./{way}"
