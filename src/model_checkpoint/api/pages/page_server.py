"""Page server: which file answers a path; what a browser has already is not sent again."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from model_checkpoint.api.answers.basics import Problem
from model_checkpoint.api.pages.page_files import PageFile

_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"


class PageServer:
    """Answers every path that is not of the API: a file, or the one page, which knows its own routes."""

    def __init__(self, pages: Mapping[str, PageFile]) -> None:
        self._pages = pages

    def answer(self, request: Request) -> Response:
        """The file, the page, or that there is none."""
        path = request.url.path
        page = self._pages.get(path)
        if page is None and "." not in path.rpartition("/")[2]:
            page = self._pages.get("/index.html")
        if page is None:
            problem = Problem(error=f"there is no page {path!r} here.", code="NotFoundHere")
            return JSONResponse(problem.model_dump(), 404)
        return _sent(page, request)


def _sent(page: PageFile, request: Request) -> Response:
    # whoever names the version in the address may keep it: another version has another address
    fixed = request.query_params.get("v", "") == page.digest
    headers = {
        "etag": page.etag,
        "cache-control": _FOR_EVER if fixed else _ASK_AGAIN,
        "vary": "accept-encoding",
        "accept-ranges": "none",
    }
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if page.etag in known:
        return Response(status_code=304, headers=headers)
    content = page.content
    if page.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        content = page.packed
        headers["content-encoding"] = "gzip"
    headers["content-type"] = page.kind
    return Response(content, headers=headers)
