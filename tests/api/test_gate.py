"""One gate for all: every attack gets the answer it is meant to get."""

import asyncio
import json
import logging
import re

import pytest
from starlette.routing import Route
from starlette.websockets import WebSocketDisconnect
from tests.ground.served import TOKEN, Server

from model_checkpoint.api.application import ROUTERS, make_open_app
from model_checkpoint.api.gate.admission import MOST_BODY, MOST_QUERY, Admission, RequestHead, hosts_of
from model_checkpoint.api.gate.body_guard import read_body
from model_checkpoint.api.gate.gatekeeper import REQUESTS, WRONG_TOKENS

PROBLEM = {"error", "code", "at", "length", "suggestion"}


def every_route(routes):
    """The routes of an application, those of the routers it includes among them."""
    for route in routes:
        inside = getattr(route, "original_router", None)
        yield from [route] if inside is None else every_route(inside.routes)


def test_every_route_without_a_token_is_401(reader):
    """MLflow forgot one router (CVE-2026-0545); here all that the application has stand behind the same gate."""
    stranger = Server(reader.library, given=None)
    routes = list(every_route(make_open_app(reader.library).routes))
    walked = 0

    for route in [*routes, Route("/api/no-such-route", print), Route("/api", print)]:
        path = route.path.replace("{run_id}", "r1").replace("{checkpoint_id}", "c1").replace("{job_id}", "j1")
        for method in sorted((route.methods or set()) | {"GET", "POST", "DELETE", "OPTIONS"}):
            answer = stranger.request(method, path, json={} if method == "POST" else None)
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"
            walked += 1

    assert {route.path for route in routes} >= {route.path for router in ROUTERS for route in router.routes}
    assert len(routes) >= 28
    assert walked > 4 * 28


@pytest.mark.parametrize("given", ["wrong", "", TOKEN[:-1], f"{TOKEN} ", "Bearer", "\u00e9"])
def test_a_token_is_right_or_wrong(reader, given):
    headers = {"authorization": f"Bearer {given}".encode()}
    expected = 200 if given.strip() == TOKEN else 401

    assert Server(reader.library, given=None).get("/api/jobs", headers=headers).status_code == expected


def test_guessing_tokens_soon_costs_a_minute(reader):
    stranger = Server(reader.library, given="guess")

    statuses = [stranger.get("/api/jobs").status_code for _ in range(WRONG_TOKENS + 1)]

    assert set(statuses[:-1]) == {401}
    assert statuses[-1] == 429


@pytest.mark.parametrize("host", ["evil.example", "testserver.evil.example", "", "169.254.169.254", "testserver@evil"])
def test_a_foreign_host_is_refused(reader, host):
    """A name that was bound to our address afterwards is not ours: DNS rebinding, CVE-2025-14279."""
    answer = reader.get("/api/jobs", headers={"host": host})

    assert (answer.status_code, answer.json()["code"]) == (403, "HostNotAllowed")
    assert reader.get("/", headers={"host": host}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://testserver.evil.example"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_a_foreign_page_may_not_ask(reader, headers):
    answer = reader.get("/api/jobs", headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (403, "OriginNotAllowed")
    assert "access-control-allow-origin" not in answer.headers


def test_our_own_page_may_ask(reader):
    assert reader.get("/api/jobs", headers={"origin": "http://testserver"}).status_code == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_a_form_changes_nothing(reader, built, kind):
    """Forms of foreign pages need no permission of a browser (CVE-2025-1473); JSON does."""
    path = f"/api/checkpoints/{built.real_checkpoints[0]}/delete"

    answer = reader.post(path, content=b"a=1", headers={"content-type": kind})

    assert (answer.status_code, answer.json()["code"]) == (415, "JsonNeeded")
    assert reader.get(f"/api/checkpoints/{built.real_checkpoints[0]}").json()["deleted_at"] is None


@pytest.mark.parametrize(
    "path",
    [
        "/api/checkpoints/..%2f..%2fetc%2fpasswd",
        "/api/checkpoints/%252e%252e%252fetc",
        "/api/checkpoints/%2fetc%2fpasswd",
        "/api/checkpoints/a%00b",
        "/api/runs/..",
        "/api/runs/%2e%2e/saves",
        "/api/runs/C:%5Cx",
        "/..%2f..%2fetc/passwd.txt",
        "/js/%2e%2e/%2e%2e/serving.py",
    ],
)
def test_ids_are_never_paths(reader, path):
    """CVE-2023-1177, CVE-2024-1560: nothing of an address reaches a file system."""
    answer = reader.get(path)

    assert answer.status_code in (404, 422)
    assert set(answer.json()) == PROBLEM
    assert "root:" not in answer.text


def test_a_path_that_climbs_out_gets_the_one_page_and_no_file(reader):
    """Clients shorten it to /etc/passwd, which is an address of the page like any other."""
    answer = reader.get("/api/../../etc/passwd")

    assert answer.text == reader.get("/").text
    assert "root:" not in answer.text


@pytest.mark.parametrize(
    ("parameter", "value", "status"),
    [
        ("q", "'; DROP TABLE experiments; --", 200),
        ("q", "val_loss < 1 OR 1=1", 200),
        ("q", "val_loss < 1; DROP", 400),
        ("q", "name:%", 200),
        ("q", "a" * 3000, 400),
        ("sort", "step; DROP TABLE experiments", 200),
        ("cursor", "../../x", 400),
        ("cursor", "WzEsMl0", 400),
        ("limit", "100000", 422),
        ("limit", "-1", 422),
        ("cols", ",".join(f"m{n}" for n in range(60)), 400),
    ],
)
def test_sql_and_excess_in_a_search_are_only_text(reader, parameter, value, status):
    answer = reader.get("/api/runs", params={parameter: value})

    assert answer.status_code == status
    assert reader.get("/api/runs").json()["counts"]["alive"] == 1


@pytest.mark.parametrize("word", ["%", "a%", "___________", ".*", "[a-z]+", "(a+)+$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
@pytest.mark.parametrize("field", ["name:", "tag:", "experiment:", ""])
def test_a_pattern_in_a_search_is_a_text_that_nothing_is_called(reader, field, word):
    """Neither a wildcard of the database nor an expression that takes for ever."""
    answer = reader.get("/api/runs", params={"q": f'{field}"{word}"'})

    assert (answer.status_code, answer.json()["rows"]) == (200, [])
    assert len(reader.get("/api/runs", params={"q": ""}).json()["rows"]) > 1


def test_everything_has_a_limit(reader):
    assert reader.get("/api/runs?q=" + "a" * MOST_QUERY).status_code == 414
    assert reader.get("/api/" + "a" * 4000).status_code == 414
    large = b'{"keep": ["' + b"a" * MOST_BODY + b'"]}'
    assert reader.post("/api/retention/plan", content=large).status_code == 413

    def endless():
        for _ in range(100):
            yield b"a" * (MOST_BODY // 50)

    assert reader.post("/api/retention/plan", content=endless()).status_code == 413
    ids = ",".join(f"r{n}" for n in range(300))
    assert reader.get(f"/api/runs/series?ids={ids}&keys=a").status_code == 400
    assert reader.get("/", headers={"range": "bytes=" + ",".join(f"{n}-{n}" for n in range(1000))}).status_code == 416


@pytest.mark.parametrize("wanted", ["bytes=0-", "bytes=0-0", "bytes=5-1", "bytes=99999999999999999999-", "bytes=-"])
def test_a_range_is_answered_with_the_whole_and_no_part_of_a_file_can_be_asked_for(reader, wanted):
    answer = reader.get("/", headers={"range": wanted})

    assert (answer.status_code, answer.headers["accept-ranges"]) == (200, "none")
    assert answer.content == reader.get("/").content


def test_a_slow_body_is_cut_off():
    async def slowly():
        async def receive():
            await asyncio.sleep(0.01)
            return {"type": "http.request", "body": b"a", "more_body": True}

        return await read_body(receive, seconds=0.05)

    assert asyncio.run(slowly()).status == 408


@pytest.mark.parametrize(
    "body", ["not json", "[1]", '{"keep": "last:3"}', '{"keep": [], "x": 1}', '{"keep": ["nope:3"]}']
)
def test_a_body_that_cannot_be_used_is_refused_in_words(reader, body):
    answer = reader.post("/api/retention/plan", content=body)

    assert answer.status_code in (400, 422)
    assert set(answer.json()) == PROBLEM


def test_nobody_speaks_websockets_here(reader):
    with pytest.raises(WebSocketDisconnect, match=r"^$") as ended, reader.websocket_connect("/api/events"):
        pass

    assert ended.value.code == 1008


def test_who_asks_too_often_waits(reader):
    app = Server(reader.library).app
    first, *rest = asyncio.run(knocked(app, [(b"host", b"evil.example")], REQUESTS + 1))

    assert {status for status, _ in (first, *rest[:-1])} == {403}
    assert rest[-1][0] == 429
    assert re.fullmatch(r"wait for \d+ seconds\.", rest[-1][1]["error"])


async def knocked(app, headers, times):
    """So many requests of one client, as a server hands them over; the status and document of each."""
    scope = {"type": "http", "method": "GET", "path": "/api/jobs", "headers": headers, "client": ("10.0.0.9", 1)}
    told = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    for _ in range(times):
        sent = []

        async def send(message, sent=sent):
            sent.append(message)

        await app(dict(scope), receive, send)
        told.append((sent[0]["status"], json.loads(sent[1]["body"])))
    return told


def test_a_failure_tells_the_client_nothing_and_the_log_everything(reader, monkeypatch, caplog):
    def explode(*arguments):
        raise RuntimeError("/secret/path password=hush")

    monkeypatch.setattr(type(reader.library), "shelves", explode)
    with caplog.at_level(logging.ERROR, "model_checkpoint.api"):
        answer = reader.get("/api/runs")

    assert (answer.status_code, answer.json()["code"]) == (500, "ServerFailed")
    assert "secret" not in answer.text
    assert "password=hush" in caplog.text


def test_every_answer_has_the_headers_that_keep_pages_apart(reader):
    for answer in (reader.get("/api/jobs"), reader.get("/nothing.html"), reader.get("/api/nothing")):
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert reader.get("/api/jobs").headers["cache-control"] == "no-store"


def test_text_from_a_catalog_stays_text(server, made):
    """Markup in a note is data in JSON, whatever it says."""
    note = "<script>alert(1)</script>\x1b[31m"
    id = made.real_checkpoints[0]

    answer = server.post(f"/api/checkpoints/{id}/note", json={"text": note})

    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["note"] == note


@pytest.mark.parametrize("hosts", [(b"testserver", b"evil.example"), (b"testserver", b"testserver")])
def test_two_hosts_are_none(reader, hosts):
    """What stands before us may have gone by the other one."""
    (answer,) = asyncio.run(knocked(reader.app, [(b"host", host) for host in hosts], 1))

    assert (answer[0], answer[1]["code"]) == (403, "HostNotAllowed")


@pytest.mark.parametrize(
    ("bound", "host", "fine"),
    [
        ("0.0.0.0", "10.0.0.5:80", True),
        ("0.0.0.0", "evil.example", False),
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.5", "localhost", False),
    ],
)
def test_a_server_for_others_answers_to_addresses_not_to_names(bound, host, fine):
    head = RequestHead(method="GET", path="/", raw_path="/", query="", headers={"host": host})

    assert (Admission(hosts=hosts_of(bound), token="t").refusal(head) is None) is fine
