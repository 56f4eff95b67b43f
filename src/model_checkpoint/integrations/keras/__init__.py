"""Keras: ``fit`` of Keras 3 goes on where it was, to the very batch.

The names of the stub beside this file are imported on first use.

keras_run        the one call that takes the place of ``model.fit``.
batch_boundary   the callback that saves, leaves and goes on between two batches.
exact_batches    which kind of data it is, and how it is read exactly.
placed_batches   data with indices, from any place of an epoch, in an order that depends on its number alone.
fed_batches      loaders and other data read one batch after the other, as a dataset of Keras.
model_variables  all that training changes in a compiled model, by position.
callback_states  what the callbacks of a user have come to know.
known_backends   versions and backends of Keras that are known to resume exactly.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
