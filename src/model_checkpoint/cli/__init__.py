"""The `mckpt` command: look at checkpoints, verify, compare and remove them.

main           the verbs of `mckpt`. Each prints a table for people, or with --json one JSON value for programs.
indices        part of a tensor as people write it in Python, read without running anything.
runs           the roots below a folder, one line each.
render_repair  what `mckpt repair` did, or could do.
render         tables for people, JSON for programs. Control characters in names never reach the terminal.
"""
