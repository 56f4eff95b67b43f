"""Arrays: arrays of any framework met in a state, who shares memory with whom, and buffers to bring them back.

array_ref          one array met in a state, before it is known which arrays share memory.
aliasing           arrays over the same memory are stored once, and share memory again after a load.
buffers            where the bytes of one stored array go, and what becomes of them.
class_memo         what was found out about classes, of the caller's own only as long as they live.
frameworks         which adapter takes a type. A framework nobody imported is not imported here either.
numpy_arrays       found in a state, read in windows, made from stored bytes.
jax_arrays         found in a state, read in windows, made from stored bytes; typed PRNG keys too.
tensorflow_arrays  found in a state, read in windows, made from stored bytes.
keras_variables    models, optimizers and metrics of Keras 3 as named arrays of its backend.
torch_arrays       found in a state, read in windows, made from stored bytes, written in place.
torch_cuda         bring tensors of a device to the host through pinned memory, on a stream beside the training's own.
sharded_buffer     where the bytes of what this rank has of an array go.
shards             arrays of which this process has a part and other ranks have the rest.
torch_types        which of torch's classes are arrays, plain values, or objects with state.
"""
