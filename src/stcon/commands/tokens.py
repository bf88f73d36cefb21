"""Tokens in colour, as the paper's Figure 4: sampled ones plain, forced ones on blue.

Source: Figure 4. We add healed tokens (green), and a form without colour (a pipe, NO_COLOR): tokens parted by ``|``,
forced ones in ``‹ ›``, healed ones in ``« »``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

STYLES = {
    "sampled": ("black on grey93", "black on grey78"),
    "forced": ("bold white on blue", "bold white on dark_blue"),
    "healed": ("black on pale_green3", "black on dark_sea_green"),
}
BRACKETS = {"sampled": ("", ""), "forced": ("‹", "›"), "healed": ("«", "»")}
MARKS = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"})


def render(tokens: Sequence[tuple[bytes, str]]) -> None:
    """Write tokens to stderr.

    Args:
        tokens: each as (bytes, kind).
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    pieces = list(spellings(tokens))
    if not console.is_terminal or console.no_color:
        console.print(plain(pieces), markup=False)
        return
    line = Text()
    for index, (text, kind) in enumerate(pieces):
        line.append(text, style=STYLES[kind][index % 2])
    console.print(line)
    kinds = {kind for _, kind in pieces}
    console.print(*(Text(f" {kind} ", style=STYLES[kind][0]) for kind in STYLES if kind in kinds))


def plain(pieces: Iterable[tuple[str, str]]) -> str:
    """The tokens without colour."""
    return "|".join(BRACKETS[kind][0] + text + BRACKETS[kind][1] for text, kind in pieces)


def spellings(tokens: Iterable[tuple[bytes, str]]) -> Iterator[tuple[str, str]]:
    """Tokens as visible text; bytes that are not whole characters are shown as ``\\xNN``."""
    for data, kind in tokens:
        if data:
            text = data.decode("utf-8", "backslashreplace").translate(MARKS)
            yield "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text), kind
