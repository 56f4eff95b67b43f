"""Host: which start of which machine this is, so that what another one left is not taken for our own."""

from __future__ import annotations


def boot_id() -> str:
    """Which start of this machine it is; empty where the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""
