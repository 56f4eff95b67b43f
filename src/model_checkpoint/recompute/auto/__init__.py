"""Auto."""
