"""The files of a checkpoint in a folder, and bits of them that are changed on the medium."""

import os
from pathlib import Path

import model_checkpoint as mc
from model_checkpoint.manifest import decode


def steps(root):
    """Which are there, once what is under way has ended."""
    mc.finish_saves(root)
    return sorted(info.step for info in mc.list_checkpoints(root))


def folder(root, step=1):
    return Path(root) / "checkpoints" / f"step-{step:08d}"


def manifest_of(root, step=1):
    return decode((folder(root, step) / "manifest.json").read_bytes(), "here")


def data_file(root, step=1):
    """The first of its data files."""
    return min(folder(root, step).glob("*.safetensors"))


def flip(path, *places):
    """Change one bit of the byte at each place, by default of the last, in the very copy on the medium."""
    with open(path, "r+b") as file:
        for at in places or (-1,):
            file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))
