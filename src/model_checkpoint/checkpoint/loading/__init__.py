"""Loading: one checkpoint is chosen, checked and given back, or flows into live objects.

choosing      from an id, "latest", "best_loss" or any metric expression to one row of the catalog.
live_filling  a state that is in memory flows into live objects, checked before the first byte changes.
load_steps    the steps of a load, in their order.
resuming      everything that can be restored is; what was missing or passed over is told.
"""
