"""A crowd of savers: ``python -m tests.checkpoint.catalog.crowd_of_savers URL FOLDER RUN NUMBER COUNT [KEPT]``.

Each saves COUNT checkpoints of one run through a manager, which keeps KEPT or all, and prints an id once its save has
returned.
"""

import sys

import numpy as np

from model_checkpoint.checkpoint import EnhancedCheckpointManager


def main(url, folder, run, number, count, kept):
    """Save, and tell."""
    with EnhancedCheckpointManager(None, folder, database_url=url, max_checkpoints=kept) as manager:
        for save in range(count):
            loss = abs(save - 30) + number / 100
            state = {"w": np.full(4, loss)}
            print(manager.save_checkpoint(state, step=save, val_loss=loss, experiment_id=run), flush=True)


if __name__ == "__main__":
    number, count, *kept = map(int, sys.argv[4:])
    main(*sys.argv[1:4], number, count, kept[0] if kept else None)
