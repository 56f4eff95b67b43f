"""Recompute: keep fewer activations and rebuild the rest when backward asks for them."""
