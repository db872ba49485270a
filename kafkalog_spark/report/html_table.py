"""HTML tables whose cells sort by their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any

from kafkalog_spark.report import words


@dataclass(frozen=True, slots=True)
class Cell:
    """text: what is read. value: what it sorts by; None for a text, which sorts by itself. share: of a bar beneath the
    number, 0 to 1. kind: of the mark that it is, such as `bad`."""

    text: str
    value: float | None = None
    share: float | None = None
    kind: str = ""


def text(value: str | None) -> Cell:
    return Cell(words.NOTHING if value is None else value)


def number(value: int | None) -> Cell:
    return Cell(words.count_text(value), -1 if value is None else value)


def size(value: int, of: int = 0) -> Cell:
    """Bytes. of: the largest in the table, for a bar."""
    return Cell(words.size_text(value), value, value / of if of else None)


def time(ms: int | None) -> Cell:
    return Cell(words.time_text(ms), -1 if ms is None else ms)


def moment(value: datetime | None) -> Cell:
    return time(None if value is None else round(value.timestamp() * 1000))


def duration(ms: int | None) -> Cell:
    return Cell(words.duration_text(ms), -1 if ms is None else ms)


def mark(value: str, kind: str) -> Cell:
    """A word with a colour: `bad`, `warn`, `good`, `plain`."""
    return Cell(value, kind=kind)


MOST_ROWS = 1000  # rows of a table on the page: it stays readable, and below its size


def html_table(
    columns: Mapping[str, Callable[[Any], Cell]], items: Sequence[Any], what: str, nothing: str = "", note: str = ""
) -> str:
    """A table that scrolls, a row an item, after a note. columns: heads, and what makes a cell; what: its rows, like
    "partitions"; nothing: the text in place of both where there are no items."""
    if nothing and not items:
        return empty_text(nothing)
    rows = [[cell(item) for cell in columns.values()] for item in items[:MOST_ROWS]]
    numeric = [cell.value is not None for cell in rows[0]] if rows else [False] * len(columns)
    head = "".join(
        f'<th scope="col" tabindex="0"{" class=num" if is_number else ""}>{escape(name)}</th>'
        for name, is_number in zip(columns, numeric, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    more, what = len(items) - MOST_ROWS, escape(what)
    search = f'<input class="filter" type="search" placeholder="filter {what}" aria-label="filter {what}">'
    return (
        f"{note_text(note)}{search if len(items) > 12 else ''}"
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        f"{note_text(f'{words.count_text(more)} more {what} are not shown.' if more > 0 else '')}"
    )


_LONG = 30
"""Characters of a text from which on it is broken over lines, as wide as fits beside the other columns."""


def _cell(cell: Cell) -> str:
    shown = escape(cell.text)
    if cell.kind:
        return f'<td><span class="mark {cell.kind}">{shown}</span></td>'
    if cell.value is None:
        return f'<td class="long">{shown}</td>' if len(cell.text) > _LONG else f"<td>{shown}</td>"
    bar = "" if cell.share is None else f' style="--share:{cell.share * 100:.1f}%"'
    return f'<td class="{"num bar" if bar else "num"}" data-v="{cell.value}"{bar}>{shown}</td>'


def empty_text(what: str) -> str:
    return f'<p class="empty">{escape(what)}</p>'


def note_text(text: str) -> str:
    return f'<p class="note">{text}</p>' if text else ""
