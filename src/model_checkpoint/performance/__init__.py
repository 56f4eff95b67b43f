"""Performance: memory budgets (caches and batches join them later). Knows no tensors and no SQL."""
