"""What W&B stored of an offline run: the records of its ``.wandb`` files, a log of framed protocol buffers."""

import json
import struct
import time
from pathlib import Path

BLOCK, HEADER = 32768, 7  # as in the logs of LevelDB; the file begins with a header of the same size
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def ended(path, seconds=60):
    """The file, once W&B's own process has written how the run ended: that may be after ``finish`` has returned."""
    until = time.monotonic() + seconds
    while "exit" not in {record.WhichOneof("record_type") for record in records(path)}:
        assert time.monotonic() < until, f"{path} has no end after {seconds} s"
        time.sleep(0.01)
    return path


def records(path):
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, parts = Path(path).read_bytes(), HEADER, b""
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:  # too little room for a frame is filled up
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if at + HEADER + length > len(data):  # still being written
            return
        parts += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (FULL, LAST):
            yield Record.FromString(parts)
            parts = b""
        assert kind in (FULL, FIRST, MIDDLE, LAST)


def history(path):
    """Every logged row, in its order."""
    return [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records(path)
        if record.WhichOneof("record_type") == "history"
    ]


def run_of(path):
    """What is said of the run: id, project, name, settings."""
    run = [record.run for record in records(path) if record.WhichOneof("record_type") == "run"][-1]
    settings = {item.key: json.loads(item.value_json) for item in run.config.update}
    settings |= {
        item.key: json.loads(item.value_json)
        for record in records(path)
        if record.WhichOneof("record_type") == "config"
        for item in record.config.update
    }
    return run.run_id, run.project, run.display_name, settings
