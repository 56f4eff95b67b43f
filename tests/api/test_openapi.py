"""The OpenAPI document is true: whatever is asked by it is answered by it."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks
from tests.ground.served import TOKEN, Server

from model_checkpoint.api.application import make_open_app
from model_checkpoint.api.library.shelves import Library

EXAMPLES = 4  # for each operation, once by the rules and once against them
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


def known(made, path):
    """Ids that are there, so that not every question ends at a 404."""
    ids = {"run_id": [made.alive, made.real], "checkpoint_id": [*made.real_checkpoints, "ckpt-0005-0003"]}
    return {name: st.sampled_from(found) for name, found in ids.items() if f"{{{name}}}" in path}


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
    """Every operation, by the rules and against them; the statuses of the answers by operation."""
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", server.app, headers=HEADERS)
    asked: dict[tuple[str, str], list[int]] = {}

    for result in schema.get_all_operations():
        operation = result.ok()
        cases = st.one_of(operation.as_strategy(mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE))
        asked[operation.method.upper(), operation.path] = []

        @settings(
            max_examples=2 * examples,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=cases, ids=st.fixed_dictionaries(known(made, operation.path)), real=st.booleans())
        def ask(case, ids, real):
            if real:
                case.path_parameters = {**(case.path_parameters or {}), **ids}
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
    assert {200, 202, 404, 422} <= {status for some in asked.values() for status in some}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_read_only_server_keeps_the_same_promises_and_changes_nothing(made, tmp_path):
    with Library([str(made.folder)], read_only=True, cache_dir=str(tmp_path)) as library, Server(library) as server:
        before = server.get("/api/checkpoints?limit=200").json()["rows"]
        asked = ask_everything(server, made, examples=2)
        looks = ("/cancel", "/scrub")  # which leave what is served as it is
        changes = [(method, path) for method, path in asked if method == "POST" and not path.endswith(looks)]

        assert {one for one in changes if {200, 202} & {*asked[one]}} == set()
        assert server.get("/api/checkpoints?limit=200").json()["rows"] == before
