"""An API answers every request by its rules, needs no server, and outlives whatever its handlers do."""

import asyncio
import pickle
import subprocess
import sys
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_checkpoint.api.base_api import BaseAPI
from model_checkpoint.api.endpoints import Endpoint, EndpointTable
from model_checkpoint.api.exchange import APIRequest, APIResponse, ErrorCode, RequestRefused
from model_checkpoint.api.rate_limits import RateLimiter
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.hooks import HookManager

PRINTED = """
from model_checkpoint.api.base_api import BaseAPI

class CustomAPI(BaseAPI):
    def custom_endpoint(self, request):
        # Custom functionality
        pass
"""


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def get(api, path="/x", **more):
    return api.process_request({"path": path, **more})


def test_the_printed_example_works_as_it_stands():
    space = {}
    exec(PRINTED, space)

    api = space["CustomAPI"]()

    assert api.custom_endpoint({"any": "thing"}) is None
    assert [api.process_request({"path": "/custom_endpoint", "method": m}).status_code for m in ("GET", "POST")] == [
        204,
        204,
    ]
    assert [one["path"] for one in api.get_api_info()["endpoints"]] == ["/custom_endpoint"]


def test_importing_it_needs_no_server():
    probe = (
        "import sys, model_checkpoint.api.base_api as b; b.BaseAPI();"
        "print([m for m in ('fastapi', 'starlette', 'torch', 'sqlalchemy', 'http.server') if m in sys.modules])"
    )

    assert subprocess.check_output([sys.executable, "-c", probe], text=True).strip() == "[]"


def test_it_is_usable_with_no_argument_and_nothing_is_abstract():
    api = BaseAPI()

    assert (api.name, api.version, get(api).error) == ("api", "1.0.0", ErrorCode.ENDPOINT_NOT_FOUND)
    assert BaseAPI("mine", "2.0", False).get_api_info()["hooks"] is False
    assert not getattr(BaseAPI, "__abstractmethods__", ())


def test_methods_of_a_subclass_that_take_a_request_are_endpoints_and_no_others():
    class Mine(BaseAPI):
        def runs(self, request):
            return [1, 2]

        def helper(self, other):
            raise AssertionError("never called")

        def _private(self, request):
            raise AssertionError("never called")

        @property
        def expensive(self):
            raise AssertionError("never asked")

    api = Mine()

    assert [one["path"] for one in api.get_api_info()["endpoints"]] == ["/runs"]
    assert get(api, "/runs").to_dict() == {"success": True, "status_code": 200, "data": [1, 2]}


def test_each_error_has_the_code_and_status_of_the_contract():
    api = BaseAPI(rate_limit=None)
    api.register_endpoint("/x", lambda request: 1 / 0)
    api.register_endpoint("/y", lambda request: 1, rate_limit=1)
    get(api, "/y")

    def codes(response):
        return response.error.value, response.status_code

    assert codes(get(api, "/none")) == ("ENDPOINT_NOT_FOUND", 404)
    assert codes(get(api, "/x", method="PUT")) == ("METHOD_NOT_ALLOWED", 405)
    assert codes(get(api, "/x")) == ("HANDLER_ERROR", 500)
    assert codes(get(api, "/y")) == ("RATE_LIMIT_EXCEEDED", 429)
    assert codes(api.process_request({"paht": "/x"})) == ("REQUEST_INVALID", 400)
    assert codes(api.process_request(7)) == ("REQUEST_INVALID", 400)
    assert "ZeroDivisionError: division by zero" in get(api, "/x").message


def test_a_handler_may_refuse_in_its_own_words():
    api = BaseAPI()

    def handler(request):
        raise RequestRefused("step 7: no such checkpoint", code=ErrorCode.ENDPOINT_NOT_FOUND)

    api.register_endpoint("/x", handler)

    assert (get(api).status_code, get(api).message) == (404, "step 7: no such checkpoint")
    again = pickle.loads(pickle.dumps(RequestRefused("no", code=ErrorCode.UNAUTHORIZED)))
    assert (again.code, str(again)) == (ErrorCode.UNAUTHORIZED, "no")


def test_middleware_stands_around_handlers_the_first_outermost():
    api, seen = BaseAPI(), []

    def around(name):
        def middleware(request, following):
            seen.append(f"{name} in")
            response = following(request)
            seen.append(f"{name} out")
            return response

        return middleware

    api.register_endpoint("/x", lambda request: seen.append("handler"))
    api.add_middleware(around("first"))
    api.add_middleware(around("second"))
    get(api)

    assert seen == ["first in", "second in", "handler", "second out", "first out"]


@pytest.mark.parametrize("wrong", [lambda request, following: 1 / 0, lambda request, following: None])
def test_a_middleware_that_fails_or_loses_the_response_is_an_error(wrong):
    api = BaseAPI()
    api.register_endpoint("/x", lambda request: 1)
    api.add_middleware(wrong)

    assert (get(api).error, get(api).status_code) == (ErrorCode.MIDDLEWARE_ERROR, 500)
    with pytest.raises(OptionInvalid, match="cannot be called"):
        api.add_middleware("no")


def test_a_middleware_may_answer_itself_and_the_error_of_a_handler_stays_its_own():
    api = BaseAPI()
    api.register_endpoint("/x", lambda request: 1 / 0)
    api.add_middleware(lambda request, following: APIResponse(data="mine") if request.params else following(request))

    assert get(api, params={"a": 1}).data == "mine"
    assert get(api).error is ErrorCode.HANDLER_ERROR


def test_one_client_gets_a_hundred_requests_in_any_minute_and_others_are_not_touched():
    clock = Clock()
    api = BaseAPI(clock=clock)
    api.register_endpoint("/x", lambda request: 1)

    answers = []
    for _ in range(101):
        answers.append(get(api, client="a").status_code)
        clock.now += 0.1
    assert answers == [200] * 100 + [429]
    assert get(api, client="b").status_code == 200
    clock.now += 50.95  # the first eleven of them are a minute ago
    assert [get(api, client="a").status_code for _ in range(12)].count(200) == 11


def test_the_limit_of_an_endpoint_is_kept_apart_from_that_of_the_client():
    api = BaseAPI(rate_limit=5)
    api.register_endpoint("/x", lambda request: 1, rate_limit=2)
    api.register_endpoint("/y", lambda request: 1)

    assert [get(api, "/x").status_code for _ in range(3)] == [200, 200, 429]
    assert [get(api, "/y").status_code for _ in range(3)] == [200, 200, 429]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.floats(0.0, 30.0), min_size=1, max_size=60), st.integers(1, 5))
def test_in_no_minute_more_requests_pass_than_allowed_and_none_is_refused_without_need(gaps, limit):
    clock, passed = Clock(), []
    limiter = RateLimiter(clock=clock)
    for gap in gaps:
        clock.now += gap
        recent = [moment for moment in passed if moment > clock.now - 60]
        wait = limiter.wait("client", limit=limit)
        assert (wait == 0.0) == (len(recent) < limit)
        if wait == 0.0:
            passed.append(clock.now)
        else:
            assert recent[-limit] + 60 - clock.now == pytest.approx(wait)


def test_an_answer_to_a_get_is_used_again_until_its_time_is_over():
    clock, calls = Clock(), []
    api = BaseAPI(clock=clock)
    api.register_endpoint("/x", lambda request: calls.append(1) or len(calls), cache_ttl=5, methods=["GET", "POST"])

    first, again = get(api), get(api)
    assert (first.data, first.cached, again.data, again.cached) == (1, False, 1, True)
    assert get(api, params={"page": 2}).data == 2
    assert get(api, method="POST").data == 3
    clock.now += 5
    assert get(api).data == 4
    assert api.clear_cache() == 1
    assert get(api).data == 5


def test_an_error_is_not_kept_and_a_kept_answer_cannot_be_changed():
    api, calls = BaseAPI(), []

    def handler(request):
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("not yet")
        return {"rows": []}

    api.register_endpoint("/x", handler, cache_ttl=60)

    assert get(api).error is ErrorCode.HANDLER_ERROR
    get(api)
    get(api).data["rows"].append("mine")
    assert (get(api).data, len(calls)) == ({"rows": []}, 2)


def test_who_must_say_who_they_are_is_asked_and_gets_nobody_elses_answer():
    api = BaseAPI(authenticate=lambda request: request.headers.get("token") == request.client)
    api.register_endpoint("/x", lambda request: request.client, requires_auth=True, cache_ttl=60)

    assert get(api, client="a").error is ErrorCode.UNAUTHORIZED
    assert get(api, client="a", headers={"token": "a"}).data == "a"
    assert get(api, client="b", headers={"token": "b"}).data == "b"
    assert get(api, client="b").status_code == 401
    with pytest.raises(OptionInvalid, match="requires_auth, but the API was given no authenticate="):
        BaseAPI().register_endpoint("/x", print, requires_auth=True)


def test_hooks_hear_of_requests_and_may_cancel_them():
    hooks, heard = HookManager(), []
    hooks.register_hook(
        "gate", lambda context: "cancel" not in context.get("request").params, events=["before_api_request"]
    )
    hooks.register_hook(
        "ear", lambda context: heard.append(context.get("response").status_code), events=["after_api_request"]
    )
    api = BaseAPI(hook_manager=hooks)
    api.register_endpoint("/x", lambda request: 1)

    assert get(api).data == 1
    assert (get(api, params={"cancel": 1}).error, heard) == (ErrorCode.REQUEST_CANCELLED, [200])
    deaf = BaseAPI(enable_hooks=False, hook_manager=hooks)
    deaf.register_endpoint("/x", lambda request: 1)
    assert get(deaf, params={"cancel": 1}).data == 1


def test_statistics_count_each_endpoint_with_percentiles():
    api = BaseAPI()
    api.register_endpoint("/runs/{run}", lambda request: 1 / int(request.path_params["run"]))
    for run in (1, 2, 0):
        get(api, f"/runs/{run}")
    get(api, "/none")

    told = api.get_statistics()

    assert (told["requests"], told["errors"]) == (4, 2)
    assert told["endpoints"]["GET /runs/{run}"] | {"mean": 0, "p50": 0, "p90": 0, "p95": 0, "p99": 0} == {
        **{"requests": 3, "errors": 1, "mean": 0},
        **{"p50": 0, "p90": 0, "p95": 0, "p99": 0},
    }
    assert api.health_check()["status"] == "healthy"
    assert (api.health_check()["requests"], api.health_check()["endpoints"]) == (4, 1)
    api.reset_statistics()
    assert api.get_statistics()["requests"] == 0


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ({"path": "x"}, "path is 'x'"),
        ({"path": "/x/"}, "path is '/x/'"),
        ({"handler": 7}, "the handler cannot be called"),
        ({"handler": asyncio.sleep}, "the handler is a coroutine"),
        ({"methods": ("FETCH",)}, "methods are"),
        ({"methods": "GET"}, "methods are"),
        ({"rate_limit": 0}, "rate_limit is 0"),
        ({"rate_limit": True}, "rate_limit is True"),
        ({"cache_ttl": -1}, "cache_ttl is -1"),
        ({"chache_ttl": 1}, "unknown settings chache_ttl"),
    ],
)
def test_wrong_rules_are_refused_at_registration(rules, problem):
    api = BaseAPI()
    config = {"path": "/x", "handler": lambda request: 1, **rules}

    assert any(problem in told for told in api.validate_endpoint_config(config))
    with pytest.raises(OptionInvalid, match=problem):
        api.register_endpoint(config.pop("path"), config.pop("handler"), **config)
    assert api.get_api_info()["endpoints"] == []
    with pytest.raises(OptionInvalid, match="rate_limit is 0"):
        BaseAPI(rate_limit=0)


def test_paths_may_be_open_and_the_closest_answers():
    api = BaseAPI()
    api.register_endpoint("/runs/{run}", lambda request: ("run", request.path_params))
    api.register_endpoint("/runs/latest", lambda request: "latest")
    api.register_endpoint("/runs/{run}/steps/{step}", lambda request: request.path_params)
    api.register_endpoint("/runs/{name}", lambda request: "removed", methods=["DELETE"])

    assert get(api, "/runs/a").data == ("run", {"run": "a"})
    assert get(api, "/runs/latest/").data == "latest"
    assert get(api, "/runs/a/steps/7").data == {"run": "a", "step": "7"}
    assert get(api, "/runs/a", method="delete").data == "removed"
    assert get(api, "/runs//").error is ErrorCode.ENDPOINT_NOT_FOUND
    with pytest.raises(OptionInvalid, match="is answered already"):
        api.register_endpoint("/runs/{other}", print)
    assert (api.unregister_endpoint("/runs/{any}"), get(api, "/runs/a").status_code) == (True, 404)
    api.register_endpoint("/", lambda request: "root")
    assert (get(api, "/").data, get(api, "//").data) == ("root", "root")
    assert EndpointTable().find("/") == []
    assert Endpoint(path="/", handler=print).match("/") == {}


def test_threads_are_answered_at_once_and_none_is_miscounted():
    api = BaseAPI(rate_limit=None)
    api.register_endpoint("/x", lambda request: request.params["n"], cache_ttl=60)
    wrong = []

    def ask(seed):
        wrong.extend(1 for n in range(300) if get(api, params={"n": (seed * n) % 7}).data != (seed * n) % 7)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (wrong, api.get_statistics()["requests"]) == ([], 1200)


def test_an_api_that_fails_itself_still_answers(monkeypatch, caplog):
    api = BaseAPI()
    api.register_endpoint("/x", lambda request: 1)
    monkeypatch.setattr(api, "_limits", None)

    response = api.process_request(APIRequest(path="/x"))

    assert (response.error, response.status_code) == (ErrorCode.INTERNAL_ERROR, 500)
    assert "a request failed in the API itself" in caplog.text
