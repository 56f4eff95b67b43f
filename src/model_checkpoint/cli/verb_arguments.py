"""Arguments: what several verbs take, said once."""

from __future__ import annotations

from typing import Annotated

import typer

RefArgument = Annotated[
    str, typer.Argument(metavar="REF", help="ROOT, ROOT@STEP, ROOT@best:METRIC, ROOT@id:ID or a folder.")
]
RootArgument = Annotated[str, typer.Argument(metavar="ROOT", help="The folder or URL given to mc.save.")]
PartsOption = Annotated[
    list[str] | None, typer.Option("--parts", help="Only this part or pattern; may be given several times.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
