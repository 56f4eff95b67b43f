"""Audit entries: what was done, as it is told by who does it; knows no SQL."""

from __future__ import annotations

import getpass
import os
import socket
import time
import uuid
from collections.abc import Mapping
from functools import cache
from typing import Any

from model_checkpoint.database.event_records import AuditEntry


def new_entry(
    action: str,
    subject: str,
    *,
    outcome: str = "ok",
    details: Mapping[str, Any] | None = None,
    actor: str | None = None,
) -> AuditEntry:
    """An entry of now, by whoever this process works for."""
    return AuditEntry(
        id=uuid.uuid4().hex,
        at=time.time(),
        actor=whoami() if actor is None else actor,
        action=action,
        outcome=outcome,
        subject=subject,
        details=dict(details or {}),
    )


@cache
def _user_and_host() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def whoami() -> str:
    """Who this process works for: user, machine and process.

    Example:
        >>> whoami().endswith(f":{os.getpid()}")
        True
    """
    return f"{_user_and_host()}:{os.getpid()}"
