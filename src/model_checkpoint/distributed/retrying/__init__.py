"""Retrying: what is done when a storage fails for a moment, or for good.

retry_policy     which failures are worth another try, and when.
fault_tolerance  tries again, stops waiting, clears up.
retried_calls    the system calls of a local store, made again where that is safe.
"""
