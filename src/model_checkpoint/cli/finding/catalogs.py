"""Catalogs: the database that is meant by a root, a file or a URL, and the run that is meant by a name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from model_checkpoint.cli.errors import CatalogMissing
from model_checkpoint.database.values.file_urls import SQLITE_FILE, file_of, file_url
from model_checkpoint.errors import WrongReference
from model_checkpoint.name_lists import did_you_mean

if TYPE_CHECKING:  # most verbs ask no catalog
    from model_checkpoint.database.local.catalog_reader import CatalogReader
    from model_checkpoint.database.records import Experiment

CATALOG_FILES = ("catalog.db", "experiments.db")  # of a manager, of a tracker
_STORES = ("s3://", "gs://", "az://", "memory://")


def catalog_url(text: str) -> str:
    """The database that a root, a file or a URL means; raises if there is none yet, and makes none.

    Example:
        >>> catalog_url("postgresql://host/runs")
        'postgresql://host/runs'
    """
    if text.startswith(_STORES):
        raise CatalogMissing(
            f"{text}: a catalog does not lie in a bucket. Give its URL, e.g. sqlite:///runs.db; "
            f"`mckpt reindex {text} --database URL` makes one."
        )
    if "://" in text and not text.startswith(SQLITE_FILE):
        return text
    path = os.path.expanduser(file_of(text) if text.startswith(SQLITE_FILE) else text)
    files = [path] if not os.path.isdir(path) else [os.path.join(path, name) for name in CATALOG_FILES]
    for file in files:
        if os.path.isfile(file):
            return file_url(os.path.abspath(file))
    raise CatalogMissing(_no_catalog(text, path))


def _no_catalog(text: str, path: str) -> str:
    if not os.path.isdir(path):
        return f"{text}: no such catalog. Give a root, a database file, or a URL such as postgresql://host/runs."
    if os.path.isdir(os.path.join(path, "checkpoints")):
        return f"{text}: a root without a catalog. `mckpt reindex {text}` builds one from its checkpoints."
    from model_checkpoint.cli.finding.runs import runs_in

    where = runs_in(path) or "Give a root, a database file, or a URL."
    return f"{text}: no catalog here, neither {' nor '.join(CATALOG_FILES)}. {where}"


def root_catalog_url(root: str, database: str) -> str | None:
    """The catalog that goes with a root: the one that is named, or that which lies in it; None if there is none."""
    if database:
        return catalog_url(database)
    file = os.path.join(os.path.expanduser(root), CATALOG_FILES[0])
    return None if "://" in root or not os.path.isfile(file) else file_url(os.path.abspath(file))


@contextmanager
def reading_catalog(text: str) -> Iterator[CatalogReader]:
    """Open a catalog to look at; an older schema is told, not changed."""
    from model_checkpoint.database.local.opened_reader import open_reader

    with open_reader(catalog_url(text)) as catalog:
        yield catalog


def all_runs(catalog: CatalogReader) -> list[Experiment]:
    """Every run, the latest start first; one that logs no step is as far as what it saved."""
    return [replace(one.experiment, step=one.step) for one in catalog.overviews()]


def run_called(runs: Sequence[Experiment], word: str, where: str) -> Experiment:
    """The run of that id, beginning of an id, or name; among runs of one name the latest. Without a word, the latest.

    Example:
        >>> from model_checkpoint.database.records import Experiment
        >>> run_called([Experiment(id="3fa9", name="baseline")], "3f", "runs.db").name
        'baseline'
    """
    if not runs:
        raise WrongReference(f"{where}: no run is recorded there yet.")
    if not word:
        return runs[0]
    exact = [*(run for run in runs if run.id == word), *(run for run in runs if run.name == word)]
    if exact:
        return exact[0]
    hits = [run for run in runs if run.id.startswith(word)]
    if len(hits) == 1:
        return hits[0]
    hint = did_you_mean(word, [run.name for run in runs], "`mckpt experiments` lists them.")
    told = f"{len(hits)} runs begin with {word!r}" if hits else f"no run {word!r}"
    raise WrongReference(f"{where}: {told}. {hint}")


def metrics_called(known: Sequence[str], asked: Sequence[str], run: str) -> list[str]:
    """The metrics that were asked for, all of which must be there.

    Example:
        >>> metrics_called(["loss", "acc"], ["acc"], "baseline")
        ['acc']
    """
    for name in asked:
        if name not in known:
            hint = did_you_mean(name, known, f"There are {', '.join(known) or 'none'}.")
            raise WrongReference(f"run {run!r}: no metric {name!r} was logged. {hint}")
    return list(dict.fromkeys(asked))
