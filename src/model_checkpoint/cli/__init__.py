"""The `mckpt` command: look at checkpoints, verify, compare and remove them.

main    the verbs of `mckpt`. Each prints a table for people, or with --json one JSON value for programs.
runs    the roots below a folder, one line each.
render  tables for people, JSON for programs. Control characters in names never reach the terminal.
"""
