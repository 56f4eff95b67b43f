"""Storage: keep bytes under a name and give them back (step 4 of a save). Knows nothing of tensors, formats or SQL."""
