"""Strategies: which checkpoints stay and which models are best, told to the catalog; no file is touched behind it.

smart_retention       lets the catalog forget the checkpoints that are worth least.
best_model_selection  pins the best few by a weighted sum of metrics, and keeps an index of them.
score                 what a checkpoint is worth, by loss, age and epoch.
catalog_protocol      what a strategy needs of a catalog.
"""
