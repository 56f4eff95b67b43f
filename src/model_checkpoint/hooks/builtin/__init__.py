"""Builtin: hooks that come with the library. They get what they need injected; none knows a database or a framework.

quaternions  rotations that are none: in a batch, in what a model gives, in what is about to be saved.
grid         how far the experiments of a grid are, and how to go on after one died.
strategies   which checkpoints stay and which models are best, told to the catalog.
webhook      tells a web server, signed and in the background.
json_lines   a log that survives a crash: one line of JSON a record.
"""
