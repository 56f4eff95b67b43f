"""Errors of the command: each derives from the one tree and from the builtin its callers expect."""

from __future__ import annotations

from model_checkpoint.errors import CheckpointException, ExceptionType, WrongReference


class CatalogMissing(WrongReference):
    """There is no catalog where one was looked for."""


class QueryRefused(CheckpointException, PermissionError):
    """A query that would change the catalog, or look outside it; nothing was done."""

    default_type = ExceptionType.VALIDATION_FAILED


class QueryInvalidSQL(CheckpointException, ValueError):
    """A query the database does not understand; ``str`` has its own words."""

    default_type = ExceptionType.VALIDATION_FAILED


class ExtraMissing(CheckpointException, ImportError):
    """A part of the package that was not installed."""
