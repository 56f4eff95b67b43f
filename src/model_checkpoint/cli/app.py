"""App: every verb of `mckpt` as a command, and which of them is meant.

A verb is imported when it is called, and each imports what it needs when it runs: a shell that completes, a script that
lists, and `--help` pay for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from model_checkpoint.cli.plain_texts import take_texts_as_they_are
from model_checkpoint.cli.usage import hide_types, usage_of
from model_checkpoint.cli.verb_table import ALIASES, VERBS


def function_of(name: str) -> Callable[..., None]:
    """The function behind a verb.

    Example:
        >>> function_of("ls").__doc__.partition(",")[0]
        'List the checkpoints of ROOT'
    """
    home = import_module(f"model_checkpoint.cli.verbs.{VERBS[name].home}")
    function: Callable[..., None] = getattr(home, VERBS[name].function or name)
    return function


class _VerbCommand(TyperCommand):
    """One verb."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        take_texts_as_they_are(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *usage_of(self.get_params(ctx))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        hide_types(self.get_params(ctx))
        super().format_options(ctx, formatter)


class _Verbs(Mapping[str, Any]):
    """The verbs as commands, each made when it is asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        true_name = ALIASES.get(name, name)
        if true_name not in VERBS:
            raise KeyError(name)
        if true_name not in self._made:
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            examples = "\n".join(f"  {line}" for line in VERBS[true_name].examples)
            alone.command(true_name, cls=_VerbCommand, epilog=f"\b\nExamples:\n{examples}")(function_of(true_name))
            self._made[true_name] = typer.main.get_command(alone)
        return self._made[true_name]

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


class _VerbGroup(TyperGroup):
    """`mckpt` itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _Verbs()  # type: ignore[assignment]  # it is only read

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        take_texts_as_they_are(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Verbs under their headings, each with the first line of what it does."""
        widest = max(map(len, VERBS))
        for heading in dict.fromkeys(verb.heading for verb in VERBS.values()):
            with formatter.section(heading):
                names = [name for name, verb in VERBS.items() if verb.heading == heading]
                rows = [(name.ljust(widest), (function_of(name).__doc__ or "").partition("\n")[0]) for name in names]
                formatter.write_dl(rows)


app = typer.Typer(
    cls=_VerbGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExit codes: 0 fine, 1 damage or differences found, 2 usage, 3 not found,\n"
    "4 could not be done, 130 interrupted. `mckpt VERB --help` has examples.",
)


def _tell_version(asked: bool) -> None:
    if asked:
        from model_checkpoint import __version__

        print(f"mckpt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Look at checkpoints, check and mend them, keep and let go of them.

    A checkpoint is named ROOT (its newest), ROOT@100, ROOT@best:val_loss, ROOT@id:3fa9, ROOT@NAME, or by its folder;
    a ROOT is a folder or a URL (s3://, gs://, az://). Every verb but serve takes --json, for scripts.
    """
