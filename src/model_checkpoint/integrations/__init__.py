"""Integrations: the training loop, and the trainers of others, on what lies below.

huggingface       a Trainer of transformers that goes on where it was killed.
accelerate        the loop for what an Accelerator prepared.
lightning         a callback with which a fit of PyTorch Lightning goes on where it was.
keras             a fit of Keras 3 that goes on where it was, to the very batch.
loop              the loop that resumes by itself, bit for bit.
dcp               a plug for torch.distributed.checkpoint.
around            what stands around a loop and decides about its numbers, though nobody gave it to the run.
feeding           batches of any kind of data from any place of an epoch, with the randomness they had.
trainer_catalog   the run of a trainer in a catalog, if one was given.
training_options  what can be chosen for a run, of whatever trainer, and what is refused before it begins.
known_versions    a trainer whose insides were never looked at is refused by name, not resumed by luck.
errors            what the integrations refuse.
"""
