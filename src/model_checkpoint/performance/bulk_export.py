"""Bulk export: rows from anywhere into a CSV, JSON lines or Parquet file, streamed, whole or not at all.

Memory stays flat whatever the number of rows: one row at a time passes through for text, one row group for Parquet.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.performance.atomic_file import DraftFile, atomic_write
from model_checkpoint.performance.parquet_rows import write_parquet
from model_checkpoint.performance.row_formats import Row, RowRejected, as_row, write_csv, write_json_lines

log = logging.getLogger("model_checkpoint.performance")

FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_GROUP_ROWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkExport:
    """What an export wrote."""

    path: str
    format: str
    rows: int
    nbytes: int
    seconds: float


class BulkDataExporter:
    """Writes the rows that ``source`` yields, mappings, dataclasses or named tuples; each export asks ``source`` anew.

    ``columns`` chooses and orders them; without it they are those of the first row. A later row with a column that is
    not among them is an error, never a loss.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> exporter = BulkDataExporter(lambda: ({"step": n, "loss": 1 / n} for n in (1, 2)))
        >>> exporter.export(folder + "/metrics.csv").rows
        2
        >>> Path(folder + "/metrics.csv").read_text().split()
        ['step,loss', '1,1.0', '2,0.5']
    """

    def __init__(self, source: Callable[[], Iterable[Any]], *, columns: Sequence[str] | None = None) -> None:
        if not callable(source):
            raise OptionInvalid(
                f"bulk export: the source is {type(source).__name__}, expected a function that returns the rows, so "
                "that each export gets all of them. Write lambda: rows."
            )
        self._source, self._columns = source, columns

    def export(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, types: Mapping[str, type] | None = None
    ) -> BulkExport:
        """Write a file in the format its name ends in: ``.csv``, ``.jsonl``, ``.ndjson`` or ``.parquet``."""
        suffix = Path(path).suffix.lower()
        if suffix not in FORMATS:
            raise OptionInvalid(f"{path}: ends in {suffix or 'nothing'}, expected one of {', '.join(FORMATS)}.")
        return self._export(path, FORMATS[suffix], overwrite=overwrite, types=types or {})

    def export_csv(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> BulkExport:
        """Write CSV, whatever the file is called."""
        return self._export(path, "csv", overwrite=overwrite, types={})

    def export_json_lines(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> BulkExport:
        """Write one JSON object a line, whatever the file is called."""
        return self._export(path, "jsonl", overwrite=overwrite, types={})

    def export_parquet(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, types: Mapping[str, type] | None = None
    ) -> BulkExport:
        """Write Parquet, whatever the file is called; ``types`` says what the first rows do not show."""
        return self._export(path, "parquet", overwrite=overwrite, types=types or {})

    def _export(
        self, path: str | os.PathLike[str], kind: str, *, overwrite: bool, types: Mapping[str, type]
    ) -> BulkExport:
        if types and kind != "parquet":
            raise OptionInvalid(f"{path}: types= is for Parquet; {kind} has none to say.")
        start = time.perf_counter()
        with atomic_write(path, overwrite=overwrite) as file:
            count = self._write(kind, file, types)
        done = BulkExport(
            path=os.fspath(path), format=kind, rows=count, nbytes=file.size, seconds=time.perf_counter() - start
        )
        log.info("%s: %d rows, %d bytes, %.2f s", done.path, done.rows, done.nbytes, done.seconds)
        return done

    def _write(self, kind: str, file: DraftFile, types: Mapping[str, type]) -> int:
        rows = self._rows()
        if kind == "csv":
            return write_csv(rows, file, self._columns)
        if kind == "jsonl":
            return write_json_lines(rows, file)
        return write_parquet(rows, file, self._columns, types, _GROUP_ROWS)

    def _rows(self) -> Iterator[Row]:
        """The rows, reduced to the chosen columns; one that no row has is misspelt, and refused."""
        if self._columns is None:
            yield from (as_row(value, number) for number, value in enumerate(self._source()))
            return
        chosen, unseen, number = tuple(self._columns), set(self._columns), -1
        for number, value in enumerate(self._source()):
            row = as_row(value, number)
            unseen -= row.keys()
            yield {name: row.get(name) for name in chosen}
        if unseen and number >= 0:
            raise RowRejected(f"columns: no row has {', '.join(map(repr, sorted(unseen)))}. Check the spelling.")
