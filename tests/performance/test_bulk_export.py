"""An export says exactly what the rows say, in flat memory, and is whole or not there; kills included."""

import csv
import errno
import json
import math
import resource
import signal
import sys
import tracemalloc
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_checkpoint import database as catalog
from model_checkpoint.errors import OptionInvalid, StorageFailure
from model_checkpoint.performance import BulkDataExporter, ParquetUnavailable, RowRejected, TargetExists
from model_checkpoint.testing.crash import run_in_child

SUFFIXES = [".csv", ".jsonl", ".parquet"]


class Color(Enum):
    RED = "red"


def exporter(*rows, **options):
    return BulkDataExporter(lambda: iter(rows), **options)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.floats(), texts)
tables = st.lists(st.fixed_dictionaries({"a": scalars, "b,": scalars}), max_size=8)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=tables)
def test_json_lines_say_what_the_rows_say(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("x") / "rows.jsonl"

    exporter(*rows).export(path)

    def back(value):
        return float(value) if value in ("NaN", "Infinity", "-Infinity") else value

    read = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    assert len(read) == len(rows)
    for old, new in zip(rows, read, strict=True):
        for key, value in old.items():
            same = new[key] == value or (isinstance(value, float) and math.isnan(value) and new[key] == "NaN")
            assert same or back(new[key]) == value


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=tables)
def test_csv_is_read_back_by_the_standard_library(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("x") / "rows.csv"

    exporter(*rows).export(path)

    with open(path, newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    told = {None: "", True: "true", False: "false"}
    expected = [
        {
            key: value
            if isinstance(value, str)
            else told[value]
            if value is None or isinstance(value, bool)
            else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))
            for key, value in row.items()
        }
        for row in rows
    ]
    assert read == expected


def test_csv_tells_nothing_from_an_empty_text(tmp_path):
    exporter({"a": None, "b": ""}).export(tmp_path / "x.csv")

    assert (tmp_path / "x.csv").read_bytes() == b'a,b\r\n,""\r\n'


def test_values_that_training_code_has_are_told(tmp_path):
    row = {
        "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "id": UUID(int=7),
        "price": Decimal("1.10"),
        "color": Color.RED,
        "loss": np.float32(0.5),
        "tags": ("a", 1, math.nan),
        "where": Path("/x"),
    }
    exporter(row).export(tmp_path / "x.jsonl")

    assert json.loads((tmp_path / "x.jsonl").read_text()) == {
        "when": "2026-01-02T03:04:05+00:00",
        "day": "2026-01-02",
        "id": "00000000-0000-0000-0000-000000000007",
        "price": "1.10",
        "color": "red",
        "loss": 0.5,
        "tags": ["a", 1, "NaN"],
        "where": "/x",
    }


def test_parquet_keeps_types_and_moments(tmp_path):
    moment = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    rows = [
        {
            "step": 1,
            "loss": 1,
            "name": "a",
            "when": moment,
            "best": True,
            "blob": b"\0",
            "naive": moment.replace(tzinfo=None),
        },
        {"step": None, "loss": math.nan, "name": None, "when": None, "best": None, "blob": None, "naive": None},
    ]
    exporter(*rows).export(tmp_path / "x.parquet")

    read = pq.read_table(tmp_path / "x.parquet")
    assert {field.name: str(field.type) for field in read.schema} == {
        "step": "int64",
        "loss": "double",
        "name": "string",
        "when": "timestamp[us, tz=UTC]",
        "best": "bool",
        "blob": "binary",
        "naive": "timestamp[us]",
    }
    back = read.to_pylist()
    assert back[0] == rows[0]
    assert math.isnan(back[1].pop("loss"))
    assert set(back[1].values()) == {None}


def test_parquet_is_written_in_groups_and_types_may_be_said(tmp_path):
    rows = [{"step": n, "val_loss": None if n < 12_000 else 0.5} for n in range(25_000)]

    with pytest.raises(RowRejected, match=r"rows 10000 to 19999: val_loss does not fit null.*types=\{'val_loss'"):
        exporter(*rows).export(tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []
    done = exporter(*rows).export(tmp_path / "x.parquet", types={"val_loss": float})

    file = pq.ParquetFile(tmp_path / "x.parquet")
    assert (done.rows, file.metadata.num_rows, file.num_row_groups) == (25_000, 25_000, 3)


@pytest.mark.parametrize(
    ("first", "later"),
    [(1, 1.5), (1, "a"), (1.5, "a"), (True, 2), (1, True), (1.5, 2**60 + 1), ("a", b"b"), (b"b", 1)],
    ids=repr,
)
def test_parquet_never_bends_a_value_to_its_column(tmp_path, first, later):
    rows = [{"a": first}] * 10_000 + [{"a": later}]

    try:
        exporter(*rows).export(tmp_path / "x.parquet")
    except RowRejected:
        return
    read = pq.read_table(tmp_path / "x.parquet")["a"][-1].as_py()
    assert (read, type(read)) == (later, type(later))


def test_parquet_refuses_a_column_of_two_types_and_moments_of_two_kinds(tmp_path):
    with pytest.raises(RowRejected, match="a: holds int, str, and a column has one type"):
        exporter({"a": 1}, {"a": "x"}).export(tmp_path / "x.parquet")
    with pytest.raises(RowRejected, match="would not stay as it is"):
        exporter({"a": datetime(2026, 1, 1, tzinfo=UTC)}, {"a": datetime(2026, 1, 1)}).export(tmp_path / "x.parquet")
    with pytest.raises(RowRejected, match="cannot be used for b; the columns are a"):
        exporter({"a": 1}).export(tmp_path / "x.parquet", types={"b": int})


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(ParquetUnavailable, match="pip install pyarrow"):
        exporter({"a": 1}).export(tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_column_that_only_a_later_row_has_is_an_error_not_a_loss(tmp_path, suffix):
    rows = exporter({"a": 1}, {"a": 1, "b": 2}, columns=None)
    if suffix == ".jsonl":  # a line has its own columns
        assert rows.export(tmp_path / f"x{suffix}").rows == 2
        return
    if suffix == ".parquet":  # the first group shows them all
        rows = exporter(*[{"a": 1}] * 10_000, {"a": 1, "b": 2})

    with pytest.raises(RowRejected, match=r"row \d+: has 'b', which is none of the columns a"):
        rows.export(tmp_path / f"x{suffix}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_columns_choose_and_order_and_a_misspelt_one_is_refused(tmp_path, suffix):
    rows = [{"a": 1, "b": 2, "c": 3}]
    exporter(*rows, columns=["c", "a"]).export(tmp_path / f"x{suffix}")

    read = {
        ".csv": lambda path: path.read_text().splitlines()[0].split(","),
        ".jsonl": lambda path: list(json.loads(path.read_text())),
        ".parquet": lambda path: pq.read_schema(path).names,
    }[suffix](tmp_path / f"x{suffix}")
    assert read == ["c", "a"]
    with pytest.raises(RowRejected, match="no row has 'los'"):
        exporter(*rows, columns=["a", "los"]).export(tmp_path / f"y{suffix}")
    assert not (tmp_path / f"y{suffix}").exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_rows_make_a_whole_file_too(tmp_path, suffix):
    done = exporter(columns=["a", "b"]).export(tmp_path / f"x{suffix}")

    assert (done.rows, done.nbytes) == (0, (tmp_path / f"x{suffix}").stat().st_size)


def test_records_of_the_catalog_are_rows(tmp_path):
    exporter(catalog.Metric("r1", "loss", 0.5, 3, 7.0)).export(tmp_path / "x.csv")

    assert (
        tmp_path / "x.csv"
    ).read_text() == "experiment_id,metric_name,metric_value,step,timestamp\nr1,loss,0.5,3,7.0\n"


def test_dataclasses_are_rows(tmp_path):
    @dataclass(frozen=True, slots=True)
    class Metric:
        name: str
        value: float

    exporter(Metric("loss", 0.5)).export(tmp_path / "x.csv")

    assert (tmp_path / "x.csv").read_text() == "name,value\nloss,0.5\n"
    with pytest.raises(RowRejected, match="row 0: is int, expected a mapping, a dataclass or a named tuple"):
        exporter(7).export(tmp_path / "y.csv")


def test_what_no_format_can_say_is_refused_with_its_place(tmp_path):
    with pytest.raises(RowRejected, match=r"row 1: a\.b\[0\] is object"):
        exporter({"a": {}}, {"a": {"b": [object()]}}).export(tmp_path / "x.jsonl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("row", "why"),
    [({1: "a"}, "the name of a column is 1"), ({"a": {1: "x", "1": "y"}}, "a has two keys that are one")],
)
def test_names_that_would_fall_together_are_refused(tmp_path, row, why):
    with pytest.raises(RowRejected, match=f"row 0: {why}"):
        exporter(row).export(tmp_path / "x.jsonl")


def test_an_existing_file_is_left_alone_unless_asked(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("mine")

    with pytest.raises(TargetExists, match="exists already; nothing was written"):
        exporter({"a": 1}).export(path)
    assert path.read_text() == "mine"
    exporter({"a": 1}).export(path, overwrite=True)
    assert path.read_text() == "a\n1\n"


def test_a_file_that_appeared_meanwhile_is_left_alone(tmp_path):
    path = tmp_path / "x.csv"

    def rows():
        yield {"a": 1}
        path.write_text("somebody else's")

    with pytest.raises(TargetExists, match="by somebody else meanwhile"):
        BulkDataExporter(rows).export(path)
    assert [one.name for one in tmp_path.iterdir()] == ["x.csv"]
    assert path.read_text() == "somebody else's"


def test_wrong_requests_are_refused(tmp_path):
    with pytest.raises(OptionInvalid, match=r"ends in \.xlsx, expected one of \.csv"):
        exporter().export(tmp_path / "x.xlsx")
    with pytest.raises(OptionInvalid, match="expected a function that returns the rows"):
        BulkDataExporter([{"a": 1}])
    with pytest.raises(OptionInvalid, match="types= is for Parquet"):
        exporter().export(tmp_path / "x.csv", types={"a": int})


def test_a_source_that_fails_says_so_itself_and_leaves_nothing(tmp_path):
    def rows():
        yield {"a": 1}
        raise ConnectionError("the server is gone")

    with pytest.raises(ConnectionError, match=r"^the server is gone$"):
        BulkDataExporter(rows).export(tmp_path / "x.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_write_the_system_refuses_is_told_and_leaves_nothing(tmp_path):
    def work(_):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        BulkDataExporter(lambda: ({"a": "x" * 1000} for _ in range(1000))).export(tmp_path / "x.csv")

    outcome = run_in_child(work)

    assert (type(outcome.error), outcome.error.errno) == (StorageFailure, errno.EFBIG)
    assert "could not be written (File too large)" in str(outcome.error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_memory_is_flat_whatever_the_number_of_rows(tmp_path, suffix):
    def peak(count):
        rows = BulkDataExporter(lambda: ({"step": n, "loss": 1 / (n + 1)} for n in range(count)))
        tracemalloc.start()
        rows.export(tmp_path / f"{count}{suffix}")
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    peak(10)
    assert peak(20_000) < peak(200) + 200_000


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "=cmd|' /C calc'!A0", "\tx"])
def test_a_text_that_a_spreadsheet_would_compute_is_written_as_it_is(tmp_path, text):
    """Nothing is bent for one reader; the docs say how to open such a file."""
    exporter({"name": text}).export(tmp_path / "names.csv")

    with open(tmp_path / "names.csv", newline="", encoding="utf-8") as file:
        assert [row["name"] for row in csv.DictReader(file)] == [text]
