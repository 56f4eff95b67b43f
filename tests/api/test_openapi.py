"""The OpenAPI document is true: whatever is asked by it is answered by it."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks
from tests.api.conftest import TOKEN

from model_checkpoint.api.application import make_open_app

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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the tool itself
def test_no_question_is_answered_otherwise_than_the_document_says(server, made):
    """Every operation, by the rules and against them: no 5xx, no status, type or field that was not promised."""
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", server.app, headers=HEADERS)
    asked = []

    for result in schema.get_all_operations():
        operation = result.ok()
        cases = st.one_of(operation.as_strategy(mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE))

        @settings(
            max_examples=2 * EXAMPLES,
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
            asked.append(response.status_code)

        ask()

    assert len(asked) > 27 * EXAMPLES
    assert {200, 202, 404, 422} <= set(asked)
