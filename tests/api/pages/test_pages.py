"""The files of the dashboard: right types, nothing sent twice, unknown routes to the one page."""

import gzip
import re

import pytest
from starlette.requests import Request

from model_checkpoint.api.pages.page_files import read_pages
from model_checkpoint.api.pages.page_server import PageServer


@pytest.fixture
def pages(tmp_path):
    (tmp_path / "js").mkdir()
    (tmp_path / "index.html").write_text('<!doctype html><title>here</title><script src="/js/app.js"></script>')
    (tmp_path / "js/app.js").write_text("export const a = 1;\n" * 200)
    (tmp_path / "secret.py").write_text("no page")
    return PageServer(lambda: read_pages(tmp_path))


def ask(pages, path, **headers):
    query = path.partition("?")[2]
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "GET", "path": path.partition("?")[0], "query_string": query.encode()}
    return pages.answer(Request({**scope, "headers": raw, "server": ("testserver", 80), "scheme": "http"}))


def test_files_have_their_types_and_are_packed_where_that_helps(pages):
    script = ask(pages, "/js/app.js", accept_encoding="gzip, br")

    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert script.headers["content-encoding"] == "gzip"
    assert gzip.decompress(script.body) == ask(pages, "/js/app.js").body
    assert len(script.body) < 400
    assert "content-encoding" not in ask(pages, "/", accept_encoding="gzip").headers


def test_what_a_browser_has_is_not_sent_again(pages):
    page = ask(pages, "/")
    named = re.search(rb'src="(/v/[0-9a-f]{16}/js/app.js)"', page.body)[1].decode()
    first = ask(pages, named)

    again = ask(pages, "/js/app.js", if_none_match=f'"x", W/{first.headers["etag"]}')

    assert (again.status_code, again.body) == (304, b"")
    assert "immutable" in first.headers["cache-control"]
    assert page.headers["cache-control"] == again.headers["cache-control"] == "no-cache"


def test_a_tab_of_an_older_server_gets_what_there_is_now_and_does_not_keep_it(pages):
    older = ask(pages, "/v/0123456789abcdef/js/app.js")

    assert (older.status_code, older.headers["cache-control"]) == (200, "no-cache")
    assert ask(pages, "/v/0123456789abcdef/js/gone.js").status_code == 404
    assert ask(pages, "/v/0123456789abcdef/../secret.py").status_code == 404


@pytest.mark.parametrize("path", ["/", "/runs", "/checkpoint/abc"])
def test_routes_of_the_page_give_the_page(pages, path):
    assert b"<title>here</title>" in ask(pages, path).body


@pytest.mark.parametrize("path", ["/missing.js", "/secret.py", "/../secret.py", "/js/app.js.map"])
def test_what_is_no_page_is_not_there(pages, path):
    assert ask(pages, path).status_code == 404
