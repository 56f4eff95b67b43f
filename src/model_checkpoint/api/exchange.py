"""Exchange: what was asked of an API and what it answered, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from model_checkpoint.errors import CheckpointException, ExceptionType


class ErrorCode(StrEnum):
    """Why a request got no answer of its endpoint."""

    ENDPOINT_NOT_FOUND = "ENDPOINT_NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    REQUEST_INVALID = "REQUEST_INVALID"
    UNAUTHORIZED = "UNAUTHORIZED"
    REQUEST_CANCELLED = "REQUEST_CANCELLED"  # a hook said no
    RATE_LIMIT_EXCEEDED = "RATE_LIMIT_EXCEEDED"
    HANDLER_ERROR = "HANDLER_ERROR"
    MIDDLEWARE_ERROR = "MIDDLEWARE_ERROR"
    INTERNAL_ERROR = "INTERNAL_ERROR"

    @property
    def status(self) -> int:
        """The HTTP status that says the same."""
        return _STATUSES[self]


_STATUSES = {
    ErrorCode.ENDPOINT_NOT_FOUND: 404,
    ErrorCode.METHOD_NOT_ALLOWED: 405,
    ErrorCode.REQUEST_INVALID: 400,
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.REQUEST_CANCELLED: 403,
    ErrorCode.RATE_LIMIT_EXCEEDED: 429,
    ErrorCode.HANDLER_ERROR: 500,
    ErrorCode.MIDDLEWARE_ERROR: 500,
    ErrorCode.INTERNAL_ERROR: 500,
}


class RequestRefused(CheckpointException, ValueError):
    """What a handler raises to answer with an error of its own; ``code`` says which one.

    Example:
        >>> RequestRefused("step 7: no such checkpoint", code=ErrorCode.REQUEST_INVALID).code.status
        400
    """

    default_type = ExceptionType.VALIDATION_FAILED

    def __init__(self, message: str, checkpoint_path: str = "", *, code: ErrorCode = ErrorCode.REQUEST_INVALID) -> None:
        super().__init__(message, checkpoint_path)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class APIRequest:
    """One request; ``path_params`` are the parts of the path that its endpoint left open.

    Example:
        >>> APIRequest(path="/runs/7").method
        'GET'
    """

    path: str
    method: str = "GET"
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)
    body: Any = field(default=None, hash=False)
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    client: str = "local"
    path_params: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class APIResponse:
    """One answer: a value, or an error with its code.

    Example:
        >>> APIResponse(data={"ok": True}).to_dict()
        {'success': True, 'status_code': 200, 'data': {'ok': True}}
    """

    data: Any = None
    status_code: int = 200
    error: ErrorCode | None = None
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    cached: bool = False

    @property
    def success(self) -> bool:
        """Whether it is an answer and no error."""
        return self.error is None

    @staticmethod
    def refused(code: ErrorCode, message: str, **headers: str) -> APIResponse:
        """The answer for an error."""
        return APIResponse(status_code=code.status, error=code, message=message, headers=headers)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a server would send them."""
        told = {"success": self.success, "status_code": self.status_code}
        return {**told, "data": self.data} if self.success else {**told, "error": self.error, "message": self.message}
