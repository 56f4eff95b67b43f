"""The `mckpt` command: look at checkpoints, verify, compare and remove them."""
