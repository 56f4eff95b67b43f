"""Ground."""
