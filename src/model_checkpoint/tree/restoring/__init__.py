"""Restoring."""
