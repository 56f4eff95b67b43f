"""Joined pages: what the one page would ask for file by file, in few files: one style sheet, one file of modules."""

from __future__ import annotations

import re
from collections.abc import Mapping

from model_checkpoint.api.pages.module_joiner import join_modules
from model_checkpoint.api.pages.page_files import PageFile, page_file

INDEX = "/index.html"
_ALL_SHEETS = "/css/joined.css"
_SHEETS = re.compile(r'(?:<link rel="stylesheet" href="[^"]+" />\s*)+')
_ALONG = re.compile(r'<link rel="modulepreload" href="([^"]+)" />')
_ENTRY = re.compile(r'<script type="module" src="([^"]+)"></script>')
_OURS = re.compile(r"/js/.+/.+\.js|/js/app\.js")


def join_pages(pages: Mapping[str, PageFile]) -> dict[str, PageFile]:
    """The same pages in fewer files.

    Style sheets the page names in a row are sent as one. The module it starts with comes with all that this imports; a
    module the page preloads comes along in that file, and what the file itself imports is preloaded in its place.
    """
    page = pages[INDEX]
    text, sheets = _with_one_sheet(page.content.decode(), pages)
    text, modules = _with_one_module(text, pages)
    return {**pages, **sheets, **modules, INDEX: page_file(text.encode(), page.kind)}


def _with_one_sheet(text: str, pages: Mapping[str, PageFile]) -> tuple[str, dict[str, PageFile]]:
    if (row := _SHEETS.search(text)) is None:
        return text, {}
    sheets = [pages[path] for path in re.findall('href="([^"]+)"', row[0])]
    joined = page_file(b"\n".join(one.content for one in sheets), sheets[0].kind)
    return text.replace(row[0], f'<link rel="stylesheet" href="{_ALL_SHEETS}" />\n    '), {_ALL_SHEETS: joined}


def _with_one_module(text: str, pages: Mapping[str, PageFile]) -> tuple[str, dict[str, PageFile]]:
    if (entry := _ENTRY.search(text)) is None:
        return text, {}
    sources = {path: page.content.decode() for path, page in pages.items() if _OURS.fullmatch(path)}
    joined = join_modules(sources, entry[1], _ALONG.findall(text))
    listed = "\n    ".join(f'<link rel="modulepreload" href="{path}" />' for path in joined[entry[1]].imports)
    files = {path: page_file(one.text.encode(), pages[path].kind) for path, one in joined.items()}
    return _ALONG.sub("", text).replace(entry[0], f"{listed}\n    {entry[0]}"), files
