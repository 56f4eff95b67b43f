"""Saving: one call becomes a durable, recorded checkpoint.

state_parts      what goes into a checkpoint: model, optimizer, scheduler, scaler, data, random generators, and more.
managed_save     what is saved under which name, and what the manifest remembers of it.
save_steps       the steps of a save, in their order. Read ``save`` and you have read the data flow.
save_timing      what one save cost, stretch by stretch and hook by hook.
background_save  the handle of a save that goes on while training does.
"""
