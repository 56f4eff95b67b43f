"""Arrays."""
