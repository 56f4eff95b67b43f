"""A search means the same through every door."""

import json

import pytest
from typer.testing import CliRunner

from model_checkpoint.cli.app import app
from model_checkpoint.errors import OptionInvalid

SEARCHES = (
    "status:finished",
    "status:completed",
    "status:running",
    "status:alive",
    "status:stalled",
    "status:hung",
    "status:dead",
    "-status:failed tag:paper",
    "config.lr < 0.001",
    "lr = 0.1",
    "optimizer.name = muon",
    "n > 3",
    "bytes > 1000",
    "step > 40 best.val_loss > 0.3",
    "host:gpu-01",
    "user:user-2",
    "digits/real",
    'experiment:digits "real"',
)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_finds_the_same_runs_through_both_doors(reader, built, search):
    page = reader.get("/api/runs", params={"q": search}).json()
    line = CliRunner().invoke(app, ["experiments", str(built.folder), "--query", search, "--limit", "500", "--json"])

    assert {row["id"] for row in json.loads(line.output)} == {row["id"] for row in page["rows"]}
    assert page["rows"] or search in ("user:user-2",)


@pytest.mark.parametrize("search", ["stauts:x", "tag = paper", "val_los < 1", "name = real"])
def test_a_search_that_cannot_be_read_is_refused_by_both_with_the_same_words(reader, built, search):
    page = reader.get("/api/runs", params={"q": search})
    line = CliRunner().invoke(app, ["experiments", str(built.folder), "--query", search])

    assert page.status_code == 400
    assert isinstance(line.exception, OptionInvalid)
    assert page.json()["error"] in str(line.exception)
