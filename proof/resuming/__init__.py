"""Resuming: what a kill does to a training that each trainer saves and resumes by itself, beside the same under a run.

``way``              how a training is saved and resumed: by us, or by the trainer as its documentation shows it
``hand_written``     the plain loop: everything by ``torch.save``, what a batch was by counting
``huggingface_ways`` Trainer: ``resume_from_checkpoint``
``lightning_ways``   Lightning: ``ModelCheckpoint`` and ``ckpt_path="last"``, with loaders of torch and of torchdata
``accelerate_ways``  Accelerate: ``save_state``, ``load_state`` and ``skip_first_batches``, or loaders with a state
``keras_ways``       Keras: ``BackupAndRestore``
``trial``            train unbroken, train again and kill, start again, compare
``table``            the counts as Markdown for the docs

``python -m proof.resuming`` tries all of them. The trainings are those of the tests (``tests.integrations``).
"""
