"""HTML tables that the reader can sort by the values of their cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any

from kafkalog_spark.report import words

MAX_TABLE_ROWS = 1000  # rows of a table on the page, which limits its size
_LONG = 30
"""Characters. A longer text is wrapped."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Cell of a table.

    Attributes:
        text: Text that is shown.
        value: Number to sort by; None to sort by the text.
        share: Length of a bar under the number, 0 to 1; None for no bar.
        kind: CSS class of a coloured mark, such as `bad`; empty for no mark.
    """

    text: str
    value: float | None = None
    share: float | None = None
    kind: str = ""


def text(value: str | None) -> Cell:
    return Cell(words.NOTHING if value is None else value)


def number(value: int | None) -> Cell:
    return Cell(words.count_text(value), -1 if value is None else value)


def size(value: int, of: int = 0) -> Cell:
    """Return a cell of a size in bytes, with a bar if `of`, the largest size in the table, is given."""
    return Cell(words.size_text(value), value, value / of if of else None)


def time(ms: int | None) -> Cell:
    return Cell(words.time_text(ms), -1 if ms is None else ms)


def moment(value: datetime | None) -> Cell:
    return time(None if value is None else round(value.timestamp() * 1000))


def duration(ms: int | None) -> Cell:
    return Cell(words.duration_text(ms), -1 if ms is None else ms)


def mark(value: str, kind: str) -> Cell:
    """Return a cell of a coloured word; `kind` is `bad`, `warn`, `good` or `plain`."""
    return Cell(value, kind=kind)


def html_table(
    columns: Mapping[str, Callable[[Any], Cell]],
    items: Sequence[Any],
    items_name: str,
    empty_message: str = "",
    note: str = "",
) -> str:
    """Return the HTML of a scrolling table with one row per item.

    Args:
        columns: Functions from an item to a cell, by column head.
        items: The items.
        items_name: Noun for the items, such as "partitions".
        empty_message: Text instead of the table if there are no items.
        note: HTML of a note above the table.
    """
    if empty_message and not items:
        return empty_text(empty_message)
    rows = [[cell(item) for cell in columns.values()] for item in items[:MAX_TABLE_ROWS]]
    numeric = [cell.value is not None for cell in rows[0]] if rows else [False] * len(columns)
    head = "".join(
        f'<th scope="col" tabindex="0"{" class=num" if is_number else ""}>{escape(name)}</th>'
        for name, is_number in zip(columns, numeric, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    more, items_name = len(items) - MAX_TABLE_ROWS, escape(items_name)
    search = f'<input class="filter" type="search" placeholder="filter {items_name}" aria-label="filter {items_name}">'
    return (
        f"{note_text(note)}{search if len(items) > 12 else ''}"
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        f"{note_text(f'{words.count_text(more)} more {items_name} are not shown.' if more > 0 else '')}"
    )


def empty_text(what: str) -> str:
    return f'<p class="empty">{escape(what)}</p>'


def note_text(text: str) -> str:
    return f'<p class="note">{text}</p>' if text else ""


def _cell(cell: Cell) -> str:
    shown = escape(cell.text)
    if cell.kind:
        return f'<td><span class="mark {cell.kind}">{shown}</span></td>'
    if cell.value is None:
        return f'<td class="long">{shown}</td>' if len(cell.text) > _LONG else f"<td>{shown}</td>"
    bar = "" if cell.share is None else f' style="--share:{cell.share * 100:.1f}%"'
    return f'<td class="{"num bar" if bar else "num"}" data-v="{cell.value}"{bar}>{shown}</td>'
