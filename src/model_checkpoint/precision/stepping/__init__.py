"""Stepping."""
