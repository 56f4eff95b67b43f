"""The `mckpt` command: look at checkpoints, verify, compare and remove them.

main            the verbs of `mckpt`. Each prints a table for people, or with --json one JSON value for programs.
retaining       the verbs that keep and let go: prune, forecast, pin, unpin, tag, note.
verb_arguments  what several verbs take, said once.
indices         part of a tensor as people write it in Python, read without running anything.
runs            the roots below a folder, one line each.
render          tables for people, JSON for programs. Control characters in names never reach the terminal.
render_repair   what `mckpt repair` did, or could do.
render_plan     what retention keeps and drops, and what a disk will hold.
"""
