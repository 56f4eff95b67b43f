"""Page server: which file answers a path; what a browser has already is not asked for again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from model_checkpoint.api.answers.basics import Problem
from model_checkpoint.api.pages.joined_pages import INDEX
from model_checkpoint.api.pages.page_files import PageFile, page_file

_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"
_VERSIONED = re.compile(r"/v/([0-9a-f]{16})(/.+)")
_OWN_ADDRESS = re.compile(rb'((?:href|src)=")(/[^"]+")')


class _Edition(NamedTuple):
    """The files of one version."""

    version: str
    pages: Mapping[str, PageFile]


class PageServer:
    """Answers every path that is not of the API: a file, or the one page, which knows its own routes.

    The page names its files below ``/v/<version>``: whoever has them from there may keep them, since another version
    has another address, and modules that import each other by relative paths stay below it by themselves.

    Args:
        read: Gives the files; called when the first of them is asked for.
    """

    def __init__(self, read: Callable[[], Mapping[str, PageFile]]) -> None:
        self._read = read

    def read(self) -> None:
        """Read the files, if nobody has asked for one yet."""
        _ = self._edition

    @cached_property
    def _edition(self) -> _Edition:
        pages = self._read()
        version, index = _version_of(pages), pages.get(INDEX)
        return _Edition(version, pages if index is None else {**pages, INDEX: _versioned(index, version)})

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer what no route of the API answers."""
        request = Request(scope)
        if request.url.path.startswith("/api"):
            raise HTTPException(404)
        await self.answer(request)(scope, receive, send)

    def answer(self, request: Request) -> Response:
        """The file, the page, or that there is none."""
        version, pages = self._edition
        path, fixed = request.url.path, False
        if (match := _VERSIONED.fullmatch(path)) is not None:
            path, fixed = match[2], match[1] == version  # a tab of an older server gets what there is now
        page = pages.get(path)
        if page is None and "." not in path.rpartition("/")[2]:
            page = pages.get(INDEX)
            fixed = False
        if page is None:
            problem = Problem(error=f"there is no page {path!r} here.", code="NotFoundHere")
            return JSONResponse(problem.model_dump(), 404)
        return _sent(page, request, _FOR_EVER if fixed else _ASK_AGAIN)


def _version_of(pages: Mapping[str, PageFile]) -> str:
    lines = "\n".join(f"{path} {pages[path].digest}" for path in sorted(pages))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def _versioned(index: PageFile, version: str) -> PageFile:
    """The page with the addresses of this version in it."""
    content = _OWN_ADDRESS.sub(rb"\1/v/" + version.encode() + rb"\2", index.content)
    return page_file(content, index.kind)


def _sent(page: PageFile, request: Request, keep: str) -> Response:
    headers = {"etag": page.etag, "cache-control": keep, "vary": "accept-encoding", "accept-ranges": "none"}
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if page.etag in known:
        return Response(status_code=304, headers=headers)
    content = page.content
    if page.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        content = page.packed
        headers["content-encoding"] = "gzip"
    headers["content-type"] = page.kind
    return Response(content, headers=headers)
