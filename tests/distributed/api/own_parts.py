"""A coordinator, a storage, a fault handler, a validator, a logger and states as small as can be."""

import threading
import time
from datetime import UTC, datetime

import numpy as np

from model_checkpoint.distributed import (
    Shard,
    StateDict,
    StorageMetadata,
)


class OwnCoordinator:
    """Threads that talk through one dictionary."""

    patience = 30.0

    def __init__(self, rank, world_size, board):
        self.rank, self.world_size, self.board = rank, world_size, board

    def put(self, key, value):
        self.board[key] = value

    def collect(self, keys, until):
        while not all(key in self.board for key in keys) and time.monotonic() < until:
            time.sleep(0.0005)
        return {key: self.board[key] for key in keys if key in self.board}


class OwnStorage:
    """Bytes in one dictionary."""

    def __init__(self):
        self.kept, self.guard = {}, threading.Lock()

    def write(self, path, data):
        self.kept[path] = (bytes(data), datetime.now(UTC))

    def create(self, path, data):
        with self.guard:
            if path in self.kept:
                return False
            self.write(path, data)
            return True

    def read(self, path, start=0, stop=None):
        if path not in self.kept:
            raise FileNotFoundError(path)
        return self.kept[path][0][start:stop]

    def exists(self, path):
        return path in self.kept

    def delete(self, path):
        self.kept.pop(path, None)

    def list(self, prefix):
        return [path for path in list(self.kept) if path.startswith(prefix)]

    def get_metadata(self, path):
        if path not in self.kept:
            raise FileNotFoundError(path)
        return StorageMetadata(size=len(self.kept[path][0]), last_modified=self.kept[path][1])


class OwnHandler:
    """Tries twice, waits for ever, and remembers what it was asked to clear up."""

    def __init__(self):
        self.retried, self.rolled_back = 0, []

    def execute_with_retry(self, operation):
        try:
            return operation()
        except ConnectionError:
            self.retried += 1
            return operation()

    def execute_with_timeout(self, operation, timeout):
        return operation()

    def rollback(self, path):
        self.rolled_back.append(path)


class OwnResult:
    """What a validator says, without our class."""

    def __init__(self, *, is_valid=True, has_warnings=False):
        self.is_valid, self.has_warnings = is_valid, has_warnings

    def get_summary(self):
        return "seen by hand"


class OwnValidator:
    def __init__(self, result):
        self.result, self.asked = result, []

    def validate_checkpoint(self, path):
        self.asked.append(path)
        return self.result


class OwnLogger:
    def __init__(self):
        self.lines = []

    def info(self, message, *values):
        self.lines.append(("info", message % values))

    def warning(self, message, *values):
        self.lines.append(("warning", message % values))

    def error(self, message, *values):
        self.lines.append(("error", message % values))


class OwnModel:
    """One matrix of which each rank has some rows."""

    def __init__(self, coordinator, fill=None, side=6):
        count = side // coordinator.world_size
        self.first, self.side = coordinator.rank * count, side
        whole = np.arange(side * 4.0).reshape(side, 4) if fill is None else np.full((side, 4), float(fill))
        self.rows = whole[self.first : self.first + count].copy()
        self.taken = None

    def get_state_dict(self):
        return StateDict({"w": Shard(self.rows, global_shape=(self.side, 4), offsets=(self.first, 0))})

    def load_state_dict(self, state):
        self.taken = state
        self.rows = state.get_tensor("w").array


class OwnOptimizer:
    """Has nothing but a learning rate until its first step."""

    def __init__(self, **state):
        self.state = {"lr": 0.1, **state}

    def get_state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = dict(state)
