"""Stored: what was saved, and whether it came back."""
