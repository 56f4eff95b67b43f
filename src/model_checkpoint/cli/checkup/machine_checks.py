"""Machine checks: this installation's compiled parts, frameworks and extras, and the machine's memory and cores."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import import_module, metadata

from model_checkpoint import __version__
from model_checkpoint.cli.checkup.diagnosis import Diagnosis, good, note
from model_checkpoint.cli.checkup.torch_trial import TorchTrial, is_there
from model_checkpoint.cli.quantities import counted, size
from model_checkpoint.performance.available_cores import cores
from model_checkpoint.performance.available_memory import available_bytes

_COMPILED = {
    "model_checkpoint.format._sha256_lanes": "hashing",
    "model_checkpoint.format._galois": "parity",
    "model_checkpoint.performance._stream_copy": "staging",
}
_EXTRAS = {
    "obstore": ("objects", "s3://, gs://, az://"),
    "psycopg": ("postgres", "PostgreSQL"),
    "pymysql": ("mysql", "MySQL, MariaDB"),
    "fastapi": ("server", "mckpt serve"),
}


def check_machine(torch: TorchTrial) -> list[Diagnosis]:
    """Look at this installation and machine."""
    before, after = [*_package(), *_compiled()], [*_extras(), *_memory()]
    return [*before, torch.result(), *after]


def _package() -> Iterator[Diagnosis]:
    yield good(
        "package",
        f"model-checkpoint {__version__}, Python {platform.python_version()}, {platform.platform(terse=True)}",
    )


def _compiled() -> Iterator[Diagnosis]:
    missing = [what for module, what in _COMPILED.items() if not _loads(module)]
    if missing:
        yield note(
            "compiled parts",
            f"{', '.join(missing)} run without their compiled part: the bytes are the same, they take longer",
            "pip install --force-reinstall model-checkpoint, with a C compiler at hand",
        )
    else:
        yield good("compiled parts", f"{', '.join(_COMPILED.values())}: all there")


def _loads(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True


def _extras() -> Iterator[Diagnosis]:
    there = [f"{name} {metadata.version(name)}" for name in _EXTRAS if is_there(name)]
    absent = [f"[{extra}] for {what}" for name, (extra, what) in _EXTRAS.items() if not is_there(name)]
    told = f"{', '.join(there) or 'none'}" + (f"; not installed: {', '.join(absent)}" if absent else "")
    yield good("extras", told)


def _memory() -> Iterator[Diagnosis]:
    room = available_bytes()
    memory = "" if room is None else f", {size(room)} of memory available"
    yield good("machine", f"{counted(cores(), 'core')}{memory}")
