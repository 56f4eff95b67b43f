"""Validating: whether a checkpoint may be loaded, asked before anything changes.

validation_result     what was found, and whether it stands in the way.
checkers              what is asked of each file and of the checkpoint as a whole.
checkpoint_validator  all checkers over one checkpoint, the files shared out over the ranks.
"""
