"""Validation result: what was found in a checkpoint, and whether it stands in the way of a load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from model_checkpoint.errors import ExceptionType


@dataclass(slots=True)
class ValidationResult:
    """Errors, which stand in the way, and warnings, which do not; of one checker, or of several.

    Example:
        >>> result = ValidationResult("sizes")
        >>> result.add_warning("no size recorded")
        >>> result.is_valid, result.has_warnings
        (True, True)
        >>> result.add_error("too short")
        >>> print(result.get_summary())
        sizes: error: too short
        sizes: warning: no size recorded
    """

    name: str = ""
    type: ExceptionType = ExceptionType.VALIDATION_FAILED  # of the exception that its errors come to
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    sub_results: list[ValidationResult] = field(default_factory=list)

    @property
    def is_valid(self) -> bool:
        """Whether there is no error, here or below."""
        return not self.errors and all(one.is_valid for one in self.sub_results)

    @property
    def has_warnings(self) -> bool:
        """Whether there is a warning, here or below."""
        return bool(self.warnings) or any(one.has_warnings for one in self.sub_results)

    def add_error(self, message: str) -> None:
        """Note what stands in the way."""
        self.errors.append(message)

    def add_warning(self, message: str) -> None:
        """Note what is odd."""
        self.warnings.append(message)

    def add_sub_results(self, *results: ValidationResult) -> None:
        """Take in what others have found."""
        self.sub_results.extend(results)

    def walk(self) -> Iterator[ValidationResult]:
        """This result and all below it."""
        yield self
        for one in self.sub_results:
            yield from one.walk()

    def get_summary(self) -> str:
        """One line for each finding, errors first, each told once."""
        every = list(self.walk())
        errors = [f"{_of(one)}error: {text}" for one in every for text in one.errors]
        warnings = [f"{_of(one)}warning: {text}" for one in every for text in one.warnings]
        return "\n".join(dict.fromkeys([*errors, *warnings])) or f"{_of(self)}valid"


def _of(result: ValidationResult) -> str:
    return f"{result.name}: " if result.name else ""
