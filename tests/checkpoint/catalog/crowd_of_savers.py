"""A crowd of savers: ``python -m tests.checkpoint.catalog.crowd_of_savers URL FOLDER RUN NUMBER COUNT``.

Each saves COUNT checkpoints of one run through a manager and prints an id once its save has returned.
"""

import sys

import numpy as np

from model_checkpoint.checkpoint import EnhancedCheckpointManager


def main(url, folder, run, number, count):
    """Save, and tell."""
    with EnhancedCheckpointManager(None, folder, database_url=url, max_checkpoints=None) as manager:
        for save in range(count):
            loss = abs(save - 30) + number / 100
            state = {"w": np.full(4, loss)}
            print(manager.save_checkpoint(state, step=save, val_loss=loss, experiment_id=run), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
