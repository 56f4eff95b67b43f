"""The OpenAPI document is true: whatever is asked by it is answered by it."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks
from tests.ground.served import TOKEN, Server

from model_checkpoint.api.application import make_open_app
from model_checkpoint.api.library.shelves import Library

EXAMPLES = 6  # for each operation, and as many again; half of them about what is there
PROMISES = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
HEADERS = {"authorization": f"Bearer {TOKEN}", "host": "testserver"}


def test_the_document_names_every_route_with_its_refusals(reader):
    document = reader.get("/api/openapi.json").json()
    operations = [operation for path in document["paths"].values() for operation in path.values()]

    assert len(operations) >= 27
    for operation in operations:
        assert {"400", "401", "403", "422", "429"} <= set(operation["responses"]), operation["operationId"]
        assert operation["description"]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert make_open_app(reader.library).openapi() == document


class SeededIds:
    """What is really there, drawn for the parameters that name it, so that not every question ends at a 404."""

    def __init__(self, server, made):
        self._server, self._made = server, made
        rows = server.get("/api/runs?limit=200").json()["rows"]
        runs = st.sampled_from([row["id"] for row in rows])
        names = st.lists(st.sampled_from(["val_loss", "train_loss", "lr"]), min_size=1, max_size=2, unique=True)
        saved = server.get("/api/checkpoints?limit=200").json()["rows"]
        whole = st.sampled_from(made.real_checkpoints)  # whose files are there, too
        checkpoints = st.sampled_from([*made.real_checkpoints * 3, *(row["id"] for row in saved[:4])])
        self._places = {
            "run_id": runs | st.just(made.real),
            "checkpoint_id": checkpoints,
            "job_id": st.builds(self._job),
        }
        self._queries = {
            "ids": st.lists(runs, min_size=1, max_size=3, unique=True).map(",".join),
            "keys": names.map(",".join),
            "cols": names.map(",".join),
            "a": whole,
            "b": whole,
            "run": runs,
            "experiment": st.sampled_from([row["experiment"] for row in rows]),
            "cursor": st.just(""),
            "seconds": st.just(0),
        }
        words = {"/api/runs": ["", "status:alive", "val_loss < 1 -tag:x", '"some words"'], "tensors": ["", "w"]}
        self._words = {end: st.sampled_from(found) for end, found in words.items()}
        self._sorts = {
            "/api/runs": st.sampled_from(["", "status", "-val_loss"]),
            "tensors": st.sampled_from(["name", "-name"]),
        }
        keep = st.lists(st.sampled_from(["last:3", "every:10", "best:val_loss"]), min_size=1, unique=True)
        plans = st.fixed_dictionaries({"keep": keep, "run": st.sampled_from([made.real, made.alive])})
        self._bodies = {
            "plan": plans,
            "apply": plans.map(lambda plan: {"plan_id": self._plan(plan)}),
            "undo": plans.map(lambda plan: {"undo_id": self._undo(plan)}),
            "scrub": st.fixed_dictionaries({}, optional={"run": runs}),
            "tags": st.fixed_dictionaries({"add": st.lists(st.sampled_from(["a", "\u00fc"]), min_size=1)}),
            "pin": st.fixed_dictionaries({"pinned": st.booleans()}),
            "note": st.fixed_dictionaries({"text": st.sampled_from(["", "words"])}),
        }

    def _job(self):
        return self._server.post("/api/integrity/scrub", json={}).json()["id"]

    def _plan(self, plan):
        return self._server.post("/api/retention/plan", json=plan).json().get("plan_id", "none")

    def _undo(self, plan):
        done = self._server.post("/api/retention/apply", json={"plan_id": self._plan(plan)}).json()
        return done.get("undo_id", "none")  # which a server that only reads does not give

    def of(self, operation):
        """Real values of an operation: for its path, its query and its body."""
        end = operation.path.rpartition("/")[2] if "{" in operation.path else operation.path
        asked = {one.name for one in operation.query}
        places = {name: one for name, one in self._places.items() if f"{{{name}}}" in operation.path}
        queries = {**self._queries, **({"q": self._words[end], "sort": self._sorts[end]} if end in self._words else {})}
        return st.fixed_dictionaries(
            {
                "places": st.fixed_dictionaries(places),
                "query": st.fixed_dictionaries({name: one for name, one in queries.items() if name in asked}),
                "body": self._bodies.get(operation.path.rpartition("/")[2], st.none()),
            }
        )


def with_real_values(case, real):
    """A question by the rules, about what is there."""
    case.path_parameters = {**(case.path_parameters or {}), **real["places"]}
    case.query = {**(case.query if isinstance(case.query, dict) else {}), **real["query"]}
    if case.method.upper() == "POST":
        case.media_type, case.body = "application/json", {} if real["body"] is None else real["body"]
    return case


class RightQuestions:
    """For each operation a question that is answered; ids of plans, undoings and jobs are drawn from the server."""

    def __init__(self, server, made):
        self.server, self.made = server, made

    def ask(self, method, path):
        """Ask it."""
        first, _, _, last = self.made.real_checkpoints
        run = self.made.real if path.endswith(("memory-plan", "loss-scale")) else self.made.alive
        if path.endswith("/restore"):
            self.server.post(f"/api/checkpoints/{first}/delete")
        ids = {"run_id": run, "checkpoint_id": first if path.endswith(("/delete", "/restore")) else last}
        if "{job_id}" in path:
            ids["job_id"] = self.server.post("/api/integrity/scrub", json={}).json()["id"]
        address = path.format(**ids)
        queries = {
            "/api/runs/series": {"ids": self.made.alive, "keys": "val_loss"},
            "/api/diff": {"a": first, "b": last},
            "/api/events": {"seconds": 0},
        }
        return self.server.request(method, address, params=queries.get(path), json=self.body(path))

    def body(self, path):
        """What belongs into it."""
        plan = {"keep": ["last:3"], "run": self.made.real}
        if path.endswith("/apply"):
            return {"plan_id": self.server.post("/api/retention/plan", json=plan).json()["plan_id"]}
        if path.endswith("/undo"):
            drawn = self.server.post("/api/retention/plan", json=plan).json()["plan_id"]
            return {"undo_id": self.server.post("/api/retention/apply", json={"plan_id": drawn}).json()["undo_id"]}
        bodies = {"plan": plan, "pin": {"pinned": False}, "tags": {"add": ["x"]}, "note": {"text": "x"}, "scrub": {}}
        return bodies.get(path.rpartition("/")[2])


def ask_everything(server, made, *, examples=EXAMPLES):
    """Every operation, by the rules, against them and about what is there; the statuses of the answers by operation."""
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", server.app, headers=HEADERS)
    seeded, asked = SeededIds(server, made), dict[tuple[str, str], list[int]]()

    for result in schema.get_all_operations():
        operation = result.ok()
        right, wrong = (operation.as_strategy(mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE))
        real = st.builds(with_real_values, right, seeded.of(operation))
        asked[operation.method.upper(), operation.path] = []

        @settings(
            max_examples=2 * examples,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=st.one_of(right, wrong, real, real))
        def ask(case):
            if case.operation.path == "/api/events":
                case.query = {**(case.query if isinstance(case.query, dict) else {}), "seconds": 0}
            response = case.call(headers=HEADERS)
            case.validate_response(response, checks=PROMISES)
            asked[case.operation.method.upper(), case.operation.path].append(response.status_code)

        ask()

    return asked


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the tool itself
def test_no_question_is_answered_otherwise_than_the_document_says(server, made):
    """No 5xx, no status, type or field that was not promised; and each operation has an answer to a right question."""
    right = RightQuestions(server, made)
    document = server.get("/api/openapi.json").json()["paths"]
    answers = {(method, path): right.ask(method.upper(), path) for path, found in document.items() for method in found}
    asked = ask_everything(server, made)

    assert {one: answer.text for one, answer in answers.items() if answer.status_code not in (200, 202)} == {}
    assert sum(map(len, asked.values())) > 27 * EXAMPLES
    assert [one for one, statuses in asked.items() if not {200, 202} & {*statuses}] == []  # all were got into
    assert {404, 415, 422} <= {status for some in asked.values() for status in some}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_read_only_server_keeps_the_same_promises_and_changes_nothing(made, tmp_path):
    with Library([str(made.folder)], read_only=True, cache_dir=str(tmp_path)) as library, Server(library) as server:
        before = server.get("/api/checkpoints?limit=200").json()["rows"]
        asked = ask_everything(server, made, examples=2)
        looks = ("/cancel", "/scrub", "/verify")  # which leave what is served as it is
        changes = [(method, path) for method, path in asked if method == "POST" and not path.endswith(looks)]

        assert {one for one in changes if {200, 202} & {*asked[one]}} == set()
        assert server.get("/api/checkpoints?limit=200").json()["rows"] == before
