"""The `mckpt` command: look at checkpoints, verify, compare and remove them.

main    the verbs of `mckpt`. Each prints a table for people, or with --json one JSON value for programs.
render  tables for people, JSON for programs. Control characters in names never reach the terminal.
"""
