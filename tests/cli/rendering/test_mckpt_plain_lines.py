"""Lines without markup are printed without rich, and are the very lines that it prints."""

import io

import pytest
from rich.console import Console

from model_checkpoint.cli.rendering.terminal import clean, clean_lines, harmless_lines, say


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "two\nlines ",
        "a\\",
        "a\\\\",
        "C:\\[x]",
        "[0. 1.]",
        "[bold]x[/]",
        ":bug: \u00fc \u4e2d",
        "x" * 300,
        "\x1b[31mred\tx",
    ],
)
def test_a_line_looks_as_rich_prints_it(text, capsys):
    say(clean_lines(text))
    plain = capsys.readouterr().out
    say(harmless_lines(text), markup=False)
    raw = capsys.readouterr().out

    asked = io.StringIO()
    Console(file=asked, width=100_000, highlight=False, emoji=False).print(clean_lines(text), soft_wrap=True)
    assert plain == asked.getvalue()
    assert raw == f"{harmless_lines(text)}\n"


def test_names_with_brackets_are_no_markup(capsys):
    say(f"[bold]name[/] {clean('[red]w')}")

    assert capsys.readouterr().out == "name [red]w\n"
