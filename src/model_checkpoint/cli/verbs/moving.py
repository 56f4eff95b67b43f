"""Moving: export, convert, adopt."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from model_checkpoint.cli.exit_codes import ExitCode
from model_checkpoint.cli.verbs.verb_arguments import JsonOption, PartsOption, RefArgument
from model_checkpoint.errors import OptionInvalid


class ConvertTo(Enum):
    """What a checkpoint can be converted to."""

    NATIVE = "native"
    DCP = "dcp"
    PT = "pt"
    SAFETENSORS = "safetensors"
    HF = "hf"
    ORBAX = "orbax"


def export(
    ref: RefArgument,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A file to make, or with --folder a folder.")],
    parts: PartsOption = None,
    folder: Annotated[bool, typer.Option("--folder", help="A folder that from_pretrained opens; one part.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write tensors as safetensors, verified.

    Nothing that exists is replaced, and nothing half-written is left.
    """
    from model_checkpoint.cli.rendering import tensor_tables
    from model_checkpoint.engine.reading.export import export_file, export_folder

    if folder and parts and len(parts) > 1:
        raise OptionInvalid("--folder takes one part: names inside it must be unique. Export the others apart.")
    if folder:
        done = export_folder(ref, target, part=(parts or ["model"])[0], progress=not as_json)
    else:
        done = export_file(ref, target, parts=parts, progress=not as_json)
    tensor_tables.exported(done, as_json=as_json)


def convert(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A checkpoint of ours, or a file or folder of theirs.")
    ],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A root for native ones, else a file or folder.")],
    *,
    to: Annotated[
        ConvertTo, typer.Option("--to", metavar="FORMAT", help="native, dcp, pt, safetensors, hf or orbax.")
    ] = ConvertTo.NATIVE,
    part: Annotated[
        str, typer.Option("--part", metavar="PART", help="Only this part, for pt, safetensors and hf.")
    ] = "",
    step: Annotated[
        int | None, typer.Option("--step", metavar="STEP", help="Its step, if SOURCE does not tell it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Convert from or to .pt, DCP, safetensors, HF or Orbax.

    SOURCE is never changed, nothing in it is run, and nothing that exists is replaced.
    """
    from model_checkpoint.cli.rendering import tensor_tables
    from model_checkpoint.cli.verbs.extras import told_what_is_missing
    from model_checkpoint.convert.converting import convert as do

    with told_what_is_missing("torch"):  # for pt and dcp
        done = do(source, target, to=to.value, part=part or None, step=step, progress=not as_json)
    tensor_tables.converted(done, as_json=as_json)


def adopt(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Checkpoints that another library wrote.")],
    root: Annotated[str, typer.Argument(metavar="ROOT", help="Where they go; by default into FOLDER itself.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Take over a folder of another library's checkpoints.

    They become checkpoints of ROOT; their files stay as they are. Leaves with 1 if one could not be read.
    """
    from model_checkpoint.cli.rendering import tensor_tables
    from model_checkpoint.cli.verbs.extras import told_what_is_missing
    from model_checkpoint.convert.adopting import adopt as do

    with told_what_is_missing("torch"):  # for pt, dcp and folders of trainers
        done = do(folder, root or None, progress=not as_json)
    tensor_tables.converted(done, as_json=as_json)
    raise typer.Exit(ExitCode.FINE if done.ok else ExitCode.FOUND)
