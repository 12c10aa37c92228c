"""HTML for the status page: escaped texts, numbers, tables, and the document around them.

Every function returns markup. Texts of data go through :func:`text` or :func:`name`, and nothing else escapes.
"""

import base64
import hashlib
import html
from collections.abc import Iterable, Sequence
from typing import Final

from pubsub_lib.logs import printable
from pubsub_lib.service.status_style import STYLE

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; base-uri 'none'; form-action 'none'"
)
"""The page may load nothing and run nothing, also if a text of data became markup."""


def text(value: object) -> str:
    r"""A text of data. Control characters and characters that change the writing direction are shown as ``\u202e``."""
    return html.escape(printable(str(value)))


def name(value: object) -> str:
    """A name of data, kept apart from the text around it: letters written from right to left do not move that text."""
    return f"<bdi>{text(value)}</bdi>"


def names(shown: Sequence[str], total: int) -> str:
    """These names of data, and how many more there are of ``total``."""
    rest = total - len(shown)
    return ", ".join(map(name, shown)) + (f" and {number(rest)} more" if rest > 0 else "")


def number(value: float | None, digits: int = 0) -> str:
    """A number with commas, after which a line may break; a dash for None."""
    if value is None:
        return "–"
    # A whole number is not converted to a float, which cannot have every position.
    shown = f"{value:,}" if isinstance(value, int) and not digits else f"{value:,.{digits}f}"
    return shown.replace(",", ",<wbr>")


def seconds(value: float) -> str:
    """A duration: the two largest units, or tenths of a second below a minute."""
    if value < MINUTE:
        return f"{value:.1f} s"
    whole = int(value)
    for unit, below, length, part in (("d", "h", DAY, HOUR), ("h", "min", HOUR, MINUTE), ("min", "s", MINUTE, 1)):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // part} {below}"
    raise AssertionError(value)


def ago(value: float | None) -> str:
    """An age in words."""
    return "never" if value is None else f"{seconds(value)} ago"


def paragraph(markup: str, kind: str = "") -> str:
    """A paragraph of markup."""
    return f'<p class="{kind}">{markup}</p>\n' if kind else f"<p>{markup}</p>\n"


def bullets(markup: Iterable[str], kind: str = "") -> str:
    """A list of markup."""
    items = "".join(f"<li>{each}</li>\n" for each in markup)
    return f'<ul class="{kind}">\n{items}</ul>\n' if kind else f"<ul>\n{items}</ul>\n"


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A table of markup. The first cell of a row is its heading; the last ``numbers`` columns have numbers."""
    first = len(columns) - numbers
    head = "".join(f'<th scope="col"{_kind(at, first)}>{each}</th>' for at, each in enumerate(columns))
    body = "".join(f"<tr>{''.join(_cell(at, each, first) for at, each in enumerate(row))}</tr>\n" for row in rows)
    return f"<table>\n<caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n"


def left_out(count: int, what: str, command: str) -> str:
    """A paragraph about rows that are not shown; "" without any."""
    if count <= 0:
        return ""
    return paragraph(f"{number(count)} more {what} are left out; <code>pubsub-db {command}</code> lists all.")


def section(identity: str, title: str, *parts: str) -> str:
    """A part of the page with a heading of its own."""
    return (
        f'<section id="{identity}" aria-labelledby="{identity}-title">\n'
        f'<h2 id="{identity}-title">{title}</h2>\n{"".join(parts)}</section>\n'
    )


def document(title: str, header: str, sections: str, footer: str, refresh: int) -> str:
    """The whole page; it loads itself again every ``refresh`` seconds, 0: never."""
    again = f'<meta http-equiv="refresh" content="{refresh}">\n' if refresh else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'{again}<link rel="icon" href="data:,">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n'
        f"<header>\n{header}</header>\n<main>\n{sections}</main>\n<footer>\n{footer}</footer>\n</body>\n</html>\n"
    )


def _cell(at: int, markup: str, first_number: int) -> str:
    tag = 'th scope="row"' if at == 0 else "td"
    return f"<{tag}{_kind(at, first_number)}>{markup}</{tag[:2]}>"


def _kind(at: int, first_number: int) -> str:
    return ' class="n"' if at >= first_number else ""
